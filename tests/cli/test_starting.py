"""Start-up time is a feature: what each command may import."""

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.backends.ray.answers import answering, recorded
from tests.support import PATIENCE

HEAVY = {"torch", "mlflow", "databricks", "ray", "psycopg", "obstore"}
BELOW = HEAVY | {"pydantic", "yaml", "rich", "jinja2", "cloudpickle", "platformdirs"}

# Modules that looking at a run that succeeded does not need. Each dataclass in them takes a tenth
# of the time of an interpreter that does nothing.
UNNEEDED = {
    "sgpu_decl.planning.prepared",
    "sgpu_decl.cli.file_options",
    "sgpu_decl.cli.run_follower",
    "sgpu_decl.diagnostics.diagnostic",
    "sgpu_decl.diagnostics.secret_texts",
    "sgpu_decl.diagnostics.tokens",
    "sgpu_decl.model.attempt_details",
    "sgpu_decl.model.environment",
    "sgpu_decl.model.plan_options",
    "sgpu_decl.storing.sqlite.liveness",
    "sgpu_decl.storing.sqlite.writer",
}

PROBE = """
import json, sys
from sgpu_decl.cli.main import main
code = main(sys.argv[1:])
ours = [name for name in sys.modules if name.startswith("sgpu_decl.")]
tops = sorted({name.partition(".")[0] for name in sys.modules}.union(ours))
print("\\n@@" + json.dumps([code, tops]))
"""


def imported(
    folder: Path, *arguments: str, environ: Mapping[str, str] | None = None
) -> tuple[int, set[str]]:
    done = subprocess.run(
        [sys.executable, "-c", PROBE, *arguments],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        cwd=folder,
        env=environ,
        check=True,
    )
    code, tops = json.loads(done.stdout.rpartition("@@")[2])
    return code, set(tops)


@pytest.mark.parametrize(
    "arguments",
    [
        ["--help"],
        [],
        ["plan", "--help"],
        ["help", "logs"],
        ["top", "--help"],
        ["apply", "--help"],
        ["version"],
        ["state"],
        ["env", "diff", "--help"],
        ["doctor", "--help"],
        ["env", "bases"],
        ["explain", "unknown_key"],
        ["dev", "workspace", "--help"],
    ],
)
def test_help_imports_nothing_below_the_command_line(tmp_path: Path, arguments: list[str]) -> None:
    code, tops = imported(tmp_path, *arguments)
    assert code == 0
    assert not tops & BELOW


def test_following_a_run_off_a_terminal_imports_no_terminal_library(sgpu: Any) -> None:
    sgpu.write("run.yaml", "name: a\ngpus: 1\ntype: CPU\ncommand: ['true']\n")
    code, tops = imported(sgpu.folder, "apply", "-y", "--set", "mlflow.enabled=false")
    assert code == 0
    assert not tops & (HEAVY | {"rich"})


@pytest.mark.parametrize("options", [[], ["-t", "prod"]])
def test_looking_at_what_is_recorded_validates_no_file(sgpu: Any, options: list[str]) -> None:
    (sgpu.folder / ".sgpu" / "prod").mkdir(parents=True)
    code, tops = imported(sgpu.folder, "status", *options)
    assert code == 0
    assert not tops & (HEAVY | {"rich", "yaml", "pydantic"})
    sgpu.write("run.yaml", "name: a\n")
    code, tops = imported(sgpu.folder, "status", *options)
    assert code == 0
    assert not tops & (HEAVY | {"rich", "pydantic"})


def test_looking_at_a_run_that_ended_validates_no_file(sgpu: Any) -> None:
    sgpu.write("run.yaml", "name: a\ngpus: 1\ntype: CPU\ncommand: ['true']\n")
    sgpu.done("apply", "-y", "--set", "mlflow.enabled=false")
    for command in (["status"], ["logs", "a"], ["results", "a"], ["show", "a"], ["wait", "a"]):
        code, tops = imported(sgpu.folder, *command)
        assert code == 0, command
        assert not sorted(tops & (HEAVY | {"rich", "pydantic", "jinja2", "cloudpickle"})), command
    (sgpu.folder / "run.yaml").unlink()
    below = HEAVY | UNNEEDED | {"rich", "yaml", "pydantic", "jinja2", "cloudpickle", "hashlib"}
    for command in (["status"], ["logs", "a"], ["results", "a"], ["show", "a"], ["wait", "a"]):
        code, tops = imported(sgpu.folder, *command)
        assert code == 0, command
        assert not sorted(tops & below), command


def test_the_tab_key_validates_no_file(sgpu: Any) -> None:
    sgpu.write("run.yaml", "name: a\ngpus: 1\ntype: CPU\ncommand: ['true']\n")
    sgpu.done("apply", "-y", "--set", "mlflow.enabled=false")
    keys = (["l"], ["logs", ""], ["logs", "a#"], ["plan", "--set", "en"], ["explain", "run."])
    for words in keys:
        code, tops = imported(sgpu.folder, "completion", "values", "--", *words)
        assert code == 0
        assert not sorted(tops & (HEAVY | {"rich", "pydantic", "jinja2", "cloudpickle"})), words
    (sgpu.folder / "run.yaml").unlink()
    below = HEAVY | UNNEEDED - {"sgpu_decl.cli.file_options", "sgpu_decl.model.plan_options"}
    for words in keys:
        code, tops = imported(sgpu.folder, "completion", "values", "--", *words)
        assert code == 0
        assert not sorted(tops & (below | {"rich", "yaml", "pydantic", "jinja2"})), words


def test_a_plan_of_a_run_with_a_ray_cluster_of_its_own_imports_no_ray(sgpu: Any) -> None:
    sgpu.write("train.py", "import ray\ndef main():\n    ray.init('local')\n")
    sgpu.write("run.yaml", "name: a\ngpus: 1\ntype: CPU\nentrypoint: train.py:main\nray: true\n")
    _, tops = imported(sgpu.folder, "plan")
    assert {"sgpu_decl.planning.ray_facts", "sgpu_decl.code.ray_calls"} <= tops
    assert not tops & HEAVY


def test_a_plan_for_a_ray_cluster_imports_no_ray(sgpu: Any) -> None:
    sgpu.write("train.py", "print()\n")
    with answering(recorded("2.60.0")) as cluster:
        block = f"backend: {{kind: ray, address: '{cluster.url}'}}\n"
        sgpu.write("run.yaml", f"name: a\ngpus: 1\ntype: H100\nentrypoint: train.py\n{block}")
        _, tops = imported(sgpu.folder, "plan")
        assert cluster.requests
    assert "sgpu_decl.backends.ray.planning.ray_survey" in tops
    assert not tops & HEAVY


def test_a_second_plan_for_a_ray_cluster_is_the_first(sgpu: Any) -> None:
    sgpu.write("train.py", "print()\n")
    with answering(recorded("2.60.0")) as cluster:
        block = f"{{kind: ray, address: '{cluster.url}', storage: {sgpu.folder}, strategy: pack,"
        block += " resources_per_rank: {CPU: 0.25, memory: 1GB}, ranks_per_node: 2}"
        head = "name: a\ngpus: 4\ntype: H100\nentrypoint: train.py\nmlflow: {enabled: false}\n"
        sgpu.write("run.yaml", f"{head}backend: {block}\n")
        first, again = (sgpu.here("plan", "-o", "json") for _ in range(2))
    plans = [{**run.json["data"], "created_at": "", "lineage": ""} for run in (first, again)]
    assert plans[0] == plans[1]
    assert "2 groups" in first.out
    assert "ranks, pack" in first.out


def test_comparing_environments_reads_no_run_file(tmp_path: Path) -> None:
    code, tops = imported(tmp_path, "env", "diff", "this", "ai-4")
    assert code == 0
    assert not tops & (HEAVY | {"rich", "yaml", "pydantic", "packaging"})


@pytest.mark.parametrize("command", ["plan", "validate", "doctor"])
def test_planning_a_local_run_imports_no_heavy_library(tmp_path: Path, command: str) -> None:
    (tmp_path / "run.yaml").write_text("name: a\ngpus: 1\ntype: CPU\ncommand: ['true']\n")
    code, tops = imported(tmp_path, command)
    assert code == 0
    assert not tops & (HEAVY | {"rich"})
