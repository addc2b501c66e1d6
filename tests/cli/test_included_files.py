"""Projects of several files, as a user has them."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Shell

RUN = "{gpus: 1, type: CPU, entrypoint: train.py:main, mlflow: {enabled: false}}"
FILE = "name: eval\ngpus: 1\ntype: CPU\nentrypoint: score.py:main\nmlflow: {enabled: false}\n"


@pytest.fixture
def project(sgpu: Shell) -> Shell:
    sgpu.write("sgpu.yml", "project: {name: demo}\ninclude: ['runs/*.yml', eval/run.yml]\n")
    sgpu.write("runs/train.yml", f"runs:\n  train: {RUN}\n")
    sgpu.write("eval/run.yml", FILE)
    sgpu.write("train.py", "def main():\n    return 1\n")
    sgpu.write("eval/score.py", "def main():\n    return 2\n")
    return sgpu


def changes(shell: Shell, *words: str) -> dict[str, Any]:
    data = shell.data("plan", *words)
    assert {check["severity"] for check in data["checks"]} <= {"info"}
    return {change["address"]: change for change in data["changes"]}


def digests(shell: Shell) -> dict[str, str]:
    return {address: change["code"]["digest"] for address, change in changes(shell).items()}


def test_validate_counts_what_the_files_hold(project: Shell) -> None:
    said = "sgpu.yml is valid: 2 runs in 3 files\n"
    assert project.here("validate").out == said
    project.write("runs/job.yml", "jobs: {nightly: {run: train, schedule: 0 0 3 * * ?}}\n")
    assert project.here("validate").out == "sgpu.yml is valid: 2 runs and 1 job in 4 files\n"
    data = project.data("validate")
    assert data["jobs"] == ["job.nightly"]
    assert data["included"] == ["runs/job.yml", "runs/train.yml", "eval/run.yml"]


def test_no_file_of_the_project_is_code(project: Shell) -> None:
    before = digests(project)
    project.write("runs/train.yml", f"# a comment\nruns:\n  train: {RUN}\n  more: {RUN}\n")
    project.write("eval/run.yml", FILE + "description: scores\n")
    after = digests(project)
    assert {name: after[name] for name in before} == before
    assert after["run.more"] == before["run.train"]
    project.write("train.py", "def main():\n    return 3\n")
    assert digests(project)["run.train"] != before["run.train"]
    assert digests(project)["run.eval"] == before["run.eval"]


def test_a_file_that_is_not_included_is_code(project: Shell) -> None:
    before = digests(project)
    project.write("data.yml", "learning: {rate: 1}\n")
    assert digests(project)["run.train"] != before["run.train"]


def test_a_change_of_an_included_file_is_seen_by_the_next_plan(project: Shell) -> None:
    for _ in range(2):  # read, and then remembered
        assert changes(project).keys() == {"run.train", "run.eval"}
    project.write("runs/train.yml", f"runs:\n  train: {RUN}\n  more: {RUN}\n")
    assert changes(project).keys() == {"run.train", "run.eval", "run.more"}
    project.write("runs/last.yml", f"runs:\n  last: {RUN}\n")
    assert "run.last" in changes(project)
    (project.folder / "runs/train.yml").unlink()
    assert changes(project).keys() == {"run.last", "run.eval"}


def test_places_are_those_of_the_included_file_also_when_remembered(project: Shell) -> None:
    for _ in range(2):
        (field,) = (
            item for item in changes(project)["run.eval"]["fields"] if item["path"] == "gpus"
        )
        assert field["origin"] == {"file": "eval/run.yml", "line": 2, "column": 7}


def test_one_file_and_several_give_the_same_plan(project: Shell) -> None:
    several = changes(project)
    for file in ("runs/train.yml", "eval/run.yml"):
        (project.folder / file).unlink()
    body = "".join(f"    {line}\n" for line in FILE.splitlines()[1:])
    project.write(
        "sgpu.yml",
        f"project: {{name: demo}}\nruns:\n  train: {RUN}\n  eval:\n{body}"
        "    code: {root: eval}\n",
    )
    one = changes(project)
    for change in (*several.values(), *one.values()):
        for field in change["fields"]:
            field.pop("origin")
    assert several == one


def test_a_mistake_is_shown_with_its_line(project: Shell) -> None:
    project.write("runs/train.yml", f"runs:\n  train: {RUN.replace('gpus', 'gpu')}\n")
    refused = project.exits(1, "validate")
    assert "runs/train.yml:2:11" in refused.err
    assert "gpu: 1" in refused.err
    assert "error[invalid_input]: `runs/train.yml` is not valid" in refused.err


def test_the_targets_of_included_files_are_targets_of_the_project(project: Shell) -> None:
    project.write("targets.yml", "targets: {prod: {runs: {train: {gpus: 2}}}}\n")
    project.write("sgpu.yml", "project: {name: demo}\ninclude: [runs/*.yml, targets.yml]\n")
    assert changes(project, "-t", "prod")["run.train"]["attempt"] == 1
    assert "checked for `prod`" in project.here("validate").out
    assert "did you mean `prod`?" in project.here("status", "-t", "prd").err


def test_a_run_that_moves_into_an_included_file_is_not_in_dispute(project: Shell) -> None:
    assert project("apply", "eval/run.yml", "--project", ".", "-y").code == 0
    project.write("runs/train.yml", "runs: {}\n")
    assert changes(project)["run.eval"]["action"] == "update"


def test_a_secret_lies_beside_the_file_that_names_it(project: Shell) -> None:
    secret = "env: {secrets: {TOKEN: file:token.txt}}\n"
    project.write("eval/run.yml", FILE + secret)
    project.write("eval/token.txt", "s3cr3t-of-eval\n")
    project.write("eval/score.py", "import os\ndef main():\n    print(os.environ['TOKEN'])\n")
    deep = project.folder / "eval" / "deep"
    deep.mkdir()
    there = ("--project", str(project.folder))
    project.ran("apply", "-y", *there, cwd=deep)
    assert project.here("logs", "eval", *there, cwd=deep).out.strip() == "***"
    assert "secret_missing" not in project.here("plan", *there, cwd=deep).out


def test_a_saved_plan_finds_the_code_again_from_the_checkout(project: Shell) -> None:
    assert project("plan", "--out", "x.plan").code == 0
    Path(project.environ["XDG_DATA_HOME"], "sgpu").rename(project.folder / "../emptied")
    assert json.loads(project.ran("apply", "x.plan", "-o", "json").out)["data"]
