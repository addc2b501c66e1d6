"""`removed` of a project: what it names goes on, and sgpu forgets it."""

import os
from pathlib import Path

import pytest

from tests.cli.conftest import Shell

RUN = """\
project: {name: demo}
runs:
  train: {gpus: 1, type: CPU, command: [sleep, "600"], mlflow: {enabled: false}, grace: 0.5s}
"""


@pytest.fixture
def sgpu(tmp_path: Path) -> Shell:
    (tmp_path / "sgpu.yml").write_text(RUN)
    return Shell(tmp_path, dict(os.environ))


def state_of(sgpu: Shell) -> str:
    return sgpu.data("show", "train#1")["state"]


def test_an_active_run_goes_on(sgpu: Shell) -> None:
    sgpu.done("apply", "-y", "--detach")
    try:
        (sgpu.folder / "sgpu.yml").write_text("project: {name: demo}\nremoved: [run.train]\n")
        assert "forget" in sgpu.exits(2, "plan", "--detailed-exitcode").out
        sgpu.done("apply", "-y")
        assert state_of(sgpu) in ("queued", "starting", "running")
        sgpu.done("plan", "--detailed-exitcode")
    finally:
        sgpu.done("cancel", "train#1")
    assert state_of(sgpu) == "cancelled"


def test_a_saved_plan_lets_go_too(sgpu: Shell) -> None:
    (sgpu.folder / "sgpu.yml").write_text(RUN.replace('sleep, "600"', "echo, hi"))
    sgpu.done("apply", "-y")
    (sgpu.folder / "sgpu.yml").write_text("project: {name: demo}\nremoved: [run.train]\n")
    sgpu.done("plan", "--out", "gone.plan")
    sgpu.done("apply", "gone.plan", "-y")
    sgpu.done("plan", "--detailed-exitcode")


@pytest.mark.parametrize(
    ("removed", "code"),
    [
        ("run.train", "removed_and_declared"),
        ("environment.gpu", "bad_address"),
        ("train", "bad_address"),
    ],
)
def test_what_cannot_be_let_go_is_refused_by_its_place(
    sgpu: Shell, removed: str, code: str
) -> None:
    (sgpu.folder / "sgpu.yml").write_text(f"removed: [{removed}]\n{RUN}")
    (found,) = sgpu.error("validate")["diagnostics"]
    assert (found["code"], found["line"], found["column"]) == (code, 1, 11)
    assert found["hint"]
