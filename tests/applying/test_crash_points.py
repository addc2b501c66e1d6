"""`kill -9` at any durable step of apply converges, with exactly one launch."""

import io
import json
import signal
import subprocess
import sys
from contextlib import chdir, redirect_stdout
from pathlib import Path
from venv import create

import pytest

from sgpu_decl.cli.main import main
from tests.dying import dying

RUN = """\
name: once
gpus: 1
type: CPU
command: [sh, -c, 'echo launched >> "$SGPU_PROJECT_DIR/launches.log"']
mlflow: {enabled: false}
"""

WRITER = "sgpu_decl.storing.writing,SqliteWriter"
STEPS = [
    f"{WRITER},begin,before,1",
    f"{WRITER},begin,after,1",
    "sgpu_decl.staging.store,Store,materialize,before,1",
    "sgpu_decl.staging.store,Store,materialize,after,1",
    "sgpu_decl.backends.entering,,_write,after,1",
    "sgpu_decl.backends.entering,,_write,after,2",
    "sgpu_decl.agent.launching,,launch,before,1",
    "sgpu_decl.agent.launching,,launch,after,1",
    f"{WRITER},launched,before,1",
    f"{WRITER},launched,after,1",
    f"{WRITER},plan_applied,before,1",
    f"{WRITER},plan_applied,after,1",
]


ENVIRONMENTS = "sgpu_decl.environments.stored.store,EnvironmentStore"
ENVIRONMENT_STEPS = [
    f"{ENVIRONMENTS},put,before,1",
    f"{ENVIRONMENTS},_write,after,1",
    f"{ENVIRONMENTS},put,after,1",
    f"{ENVIRONMENTS},hydrate,before,1",
    "sgpu_decl.agent.environment.hydrating,,_make,before,1",
    "sgpu_decl.agent.environment.hydrating,,install,before,1",
    "sgpu_decl.agent.environment.hydrating,,install,after,1",
    f"{ENVIRONMENTS},refer,after,1",
    "sgpu_decl.agent.launching,,launch,before,1",
    f"{WRITER},launched,after,1",
]


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("DATA", "CACHE", "STATE"):
        monkeypatch.setenv(f"XDG_{name}_HOME", str(tmp_path / name.lower()))
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "run.yaml").write_text(RUN)
    return folder


def sgpu(project: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "sgpu_decl", *words]
    return subprocess.run(command, cwd=project, capture_output=True, text=True, check=False)


def asked(project: Path, *words: str) -> tuple[int, str]:
    """The exit code and the answer of a command that only reads, in this process."""
    said = io.StringIO()
    with chdir(project), redirect_stdout(said):
        code = main(words)
    return code, said.getvalue()


@pytest.mark.parametrize("step", STEPS)
def test_killed_at_a_step_and_applied_again_it_ran_exactly_once(project: Path, step: str) -> None:
    _dies_and_converges(project, step)


@pytest.mark.parametrize("step", ENVIRONMENT_STEPS)
def test_killed_while_an_environment_is_staged_it_ran_exactly_once(
    project: Path, tmp_path: Path, step: str
) -> None:
    venv = tmp_path / "venv"
    create(venv, symlinks=True)
    (project / "run.yaml").write_text(f"{RUN}env: {{snapshot: true, python: {venv}/bin/python}}\n")

    _dies_and_converges(project, step)

    store = tmp_path / "data/sgpu/store/environments"
    collected = sgpu(project, "gc")
    assert collected.returncode == 0, collected.stderr
    assert list((store / "incoming").iterdir()) == []
    (tree,) = (store / "trees").iterdir()
    assert not tree.name.startswith(".")


def _dies_and_converges(project: Path, step: str) -> None:
    died = subprocess.run(
        dying(step, "apply", "-y", "--detach", "run.yaml"),
        cwd=project,
        capture_output=True,
        check=False,
    )
    assert died.returncode == -signal.SIGKILL, died.stderr.decode()

    again = sgpu(project, "apply", "-y", "run.yaml")
    assert again.returncode == 0, again.stderr

    assert (project / "launches.log").read_text() == "launched\n"
    _, status = asked(project, "status", "-o", "json")
    shown = json.loads(status)["data"]["runs"]
    assert [(run["name"], run["attempt"], run["state"]) for run in shown] == [
        ("once", 1, "succeeded")
    ]
    _, pulled = asked(project, "state", "pull", "-o", "json")
    assert json.loads(pulled)["data"]["intents"] == []
    changes, plan = asked(project, "plan", "--detailed-exitcode", "run.yaml")
    assert changes == 0, plan


def test_what_a_power_cut_tore_while_staging_is_not_run(project: Path) -> None:
    (project / "run.yaml").write_text(
        "name: once\ngpus: 1\ntype: CPU\nentrypoint: say.py:main\nmlflow: {enabled: false}\n"
    )
    (project / "say.py").write_text("def main():\n    return 'whole'\n")
    step = "sgpu_decl.agent.launching,,launch,before,1"
    died = subprocess.run(
        dying(step, "apply", "-y", "--detach", "run.yaml"), cwd=project, check=False
    )
    assert died.returncode == -signal.SIGKILL
    compiled = project / ".sgpu/default/runs/once/1/_air.pyc"
    compiled.write_bytes(compiled.read_bytes()[:99])  # the one file there that is not synced

    again = sgpu(project, "apply", "-y", "run.yaml")

    assert again.returncode == 0, again.stderr
    answer = json.loads(sgpu(project, "results", "once#1", "-o", "json").stdout)
    assert answer["data"]["results"] == [{"rank": 0, "value": "whole"}]


def test_a_saved_plan_is_applied_once(project: Path) -> None:
    assert sgpu(project, "plan", "--out", "saved.plan", "run.yaml").returncode == 0
    first = sgpu(project, "apply", "saved.plan")
    assert first.returncode == 0, first.stderr

    second = sgpu(project, "apply", "saved.plan")

    assert second.returncode == 3
    assert "applied already" in second.stderr
    assert (project / "launches.log").read_text() == "launched\n"


def test_a_saved_plan_runs_the_bytes_that_were_planned(project: Path) -> None:
    (project / "run.yaml").write_text(
        "name: pinned\ngpus: 1\ntype: CPU\nentrypoint: say.py:main\nmlflow: {enabled: false}\n"
    )
    (project / "say.py").write_text("def main():\n    return 'planned'\n")
    assert sgpu(project, "plan", "--out", "saved.plan", "run.yaml").returncode == 0
    (project / "say.py").write_text("def main():\n    return 'edited'\n")

    applied = sgpu(project, "apply", "saved.plan")

    assert applied.returncode == 0, applied.stderr
    answer = json.loads(sgpu(project, "results", "pinned", "-o", "json").stdout)
    assert answer["data"]["results"] == [{"rank": 0, "value": "planned"}]


def test_a_plan_is_stale_once_something_else_was_applied(project: Path) -> None:
    assert sgpu(project, "plan", "--out", "saved.plan", "run.yaml").returncode == 0
    assert sgpu(project, "apply", "-y", "run.yaml").returncode == 0

    stale = sgpu(project, "apply", "saved.plan", "-o", "json")

    assert stale.returncode == 3
    assert json.loads(stale.stdout)["error"]["code"] in {"stale_plan", "other_lineage"}


def test_destroying_twice_is_harmless(project: Path) -> None:
    assert sgpu(project, "apply", "-y", "run.yaml").returncode == 0
    first = sgpu(project, "destroy", "-y", "run.yaml")
    second = sgpu(project, "destroy", "-y", "run.yaml")
    assert (first.returncode, second.returncode) == (0, 0), first.stderr + second.stderr

    assert sgpu(project, "apply", "-y", "run.yaml").returncode == 0
    shown = json.loads(sgpu(project, "status", "-o", "json").stdout)["data"]["runs"]
    assert [run["attempt"] for run in shown] == [2]


def test_a_moved_run_keeps_its_history_and_its_logs(project: Path) -> None:
    (project / "run.yaml").write_text(
        "name: old\ngpus: 1\ntype: CPU\ncommand: [echo, kept]\nmlflow: {enabled: false}\n"
    )
    assert sgpu(project, "apply", "-y", "run.yaml").returncode == 0

    moved = sgpu(project, "state", "mv", "run.old", "run.new")

    assert moved.returncode == 0, moved.stderr
    assert sgpu(project, "logs", "new").stdout == "kept\n"
    (project / "run.yaml").write_text(
        "name: new\ngpus: 1\ntype: CPU\ncommand: [echo, kept]\nmlflow: {enabled: false}\n"
    )
    plan = sgpu(project, "plan", "--detailed-exitcode", "run.yaml")
    assert plan.returncode == 0, plan.stdout
