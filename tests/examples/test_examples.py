"""Every example plans as its golden files say, applies, and is up to date afterwards."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from sgpu_decl.distribution import shipped_folder

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
NAMES = sorted(path.parent.name for path in EXAMPLES.glob("*/run.yaml"))
Copied = Callable[[str], Any]  # gives an Example of conftest.py


@pytest.mark.parametrize("name", NAMES)
def test_an_example_names_its_schema_and_fits_it(name: str) -> None:
    file = EXAMPLES / name / "run.yaml"
    first, text = file.read_text().split("\n", 1)
    schema = (file.parent / first.removeprefix("# yaml-language-server: $schema=")).resolve()
    assert schema == shipped_folder("schemas") / "run.v1.schema.json"
    # PyYAML reads `1e-2` as text; the editors that this schema serves read YAML 1.2.
    run = yaml.safe_load(text.replace("1e-2", "0.01").replace("2e-3", "0.002"))
    jsonschema.validate(run, json.loads(schema.read_text()))


@pytest.mark.parametrize("name", NAMES)
def test_an_example_plans_as_its_golden_files_say(example: Copied, name: str) -> None:
    item = example(name)
    item.golden("plan.txt", _anywhere(item.sgpu("plan", "run.yaml").stdout))
    plan = item.data("plan", "run.yaml")
    for changing in ("created_at", "lineage", "tool_version"):
        assert plan.pop(changing)
    for change in plan["changes"]:
        if change["environment"]:  # that of the interpreter, too
            change["environment"]["digest"] = "sha256:…"
    item.golden("plan.json", _anywhere(json.dumps(plan, indent=2, sort_keys=True) + "\n"))


def _anywhere(plan: str) -> str:
    """The plan without what is true of this machine alone: its interpreter, its Ray and memory."""
    plan = re.sub("ranks use Python [^,]+, `[^`]+`", "ranks use Python 3.11.2, `python3`", plan)
    return re.sub(r"object store [\d.]+ .B; Ray [\w.]+", "object store 2.0 GB; Ray 2.60.0", plan)


@pytest.mark.parametrize(
    "name",
    [
        "command",
        "hello",
        "matrix",
        pytest.param("slow", marks=[pytest.mark.torch, pytest.mark.expensive]),
        pytest.param("ray", marks=[pytest.mark.ray, pytest.mark.expensive]),
    ],
)
def test_an_example_applies_and_is_then_up_to_date(example: Copied, name: str) -> None:
    item = example(name)
    applied = item.sgpu("apply", "-y", "run.yaml")
    assert applied.returncode == 0, applied.stderr
    assert {run["state"] for run in item.data("status")["runs"]} == {"succeeded"}
    assert item.sgpu("plan", "--detailed-exitcode", "run.yaml").returncode == 0


@pytest.mark.torch
@pytest.mark.expensive
def test_slow_names_the_rank_that_hangs(example: Copied) -> None:
    item = example("slow")
    stuck = ("--set", "args.stuck_at=100", "--set", "hang=stop", "--set", "hang_after=2s")
    assert item.sgpu("apply", "-y", *stuck, "run.yaml").returncode == 5
    (run,) = item.data("status")["runs"]
    named = (item.folder / "README.md").read_text().partition("\nrank 2 ")[2]
    begin, _, end = named.partition("; 3 ranks wait there for 10 s; ")
    summary = run["first_cause"]["summary"]
    assert summary.startswith(f"rank 2 {begin}; 3 ranks wait there for ")
    assert summary.endswith(end.partition("\n")[0])


def test_hello_returns_from_every_rank(example: Copied) -> None:
    item = example("hello")
    assert item.sgpu("apply", "-y", "run.yaml").returncode == 0
    values = [result["value"] for result in item.data("results", "hello")["results"]]
    assert [value["rank"] for value in values] == [0, 1, 2, 3]
    assert {value["world_size"] for value in values} == {4}


def test_command_prints_each_word_once(example: Copied) -> None:
    item = example("command")
    applied = item.sgpu("apply", "-y", "--rank", "all", "run.yaml")
    words = [line.split()[-1] for line in applied.stdout.splitlines() if line.startswith("[")]
    assert sorted(words) == (item.folder / "words.txt").read_text().split()


@pytest.mark.ray
@pytest.mark.expensive
def test_ray_data_and_ray_tune_use_the_cluster_of_the_run(example: Copied) -> None:
    item = example("ray")
    applied = item.sgpu("apply", "-y", "--rank", "all", "tuning.yaml")
    assert applied.returncode == 0, applied.stderr
    assert "64 points are prepared" in applied.stdout
    (result,) = item.data("results", "tuning")["results"]
    assert result["value"]["rate"] == 0.3
    trials = item.folder / ".sgpu/default/runs/tuning/1/output/tune"
    assert len(list(trials.glob("trial_*/result.json"))) == 4


def test_a_further_value_of_an_axis_plans_only_new_runs(example: Copied) -> None:
    item = example("matrix")
    assert item.sgpu("apply", "-y", "run.yaml").returncode == 0
    file = item.folder / "run.yaml"
    file.write_text(file.read_text().replace("[1, 2, 3]", "[1, 2, 3, 4]"))
    summary = item.data("plan", "run.yaml")["summary"]
    assert (summary["create"], summary["no_op"]) == (2, 6)


def test_ranks_keep_the_environment_that_was_planned(example: Copied) -> None:
    item = example("environment")
    assert item.sgpu("apply", "-y", "--detach", "run.yaml").returncode == 0
    item.install("2.0")
    states = {run["address"]: run["state"] for run in item.data("status")["runs"]}
    assert states['run.greet["turn=2"]'] == "queued"  # none of its ranks has started
    (item.folder / "go").touch()
    assert item.sgpu("wait", "greet*").returncode == 0
    for turn in (1, 2):
        values = item.data("results", f'greet["turn={turn}"]')["results"]
        assert [rank["value"]["version"] for rank in values] == ["1.0", "1.0"]
    item.golden("upgrade.txt", _ages(item.sgpu("plan", "run.yaml").stdout))


def _ages(plan: str) -> str:
    return re.sub(r"succeeded (just now|\d+ m?s ago)", "succeeded just now", plan)
