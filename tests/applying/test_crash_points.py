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
from sgpu_decl.testing.contracts.killed_commands import dying
from tests.applying.conftest import sgpu
from tests.sampling import sampled

RUN = """\
name: once
gpus: 1
type: CPU
command: [sh, -c, 'echo launched >> "$SGPU_PROJECT_DIR/launches.log"']
mlflow: {enabled: false}
"""

WRITER = "sgpu_decl.storing.sqlite.writer,SqliteWriter"
STEPS = [
    f"{WRITER},begin,before,1",
    f"{WRITER},begin,after,1",
    "sgpu_decl.code.code_store,CodeStore,materialize,before,1",
    "sgpu_decl.code.code_store,CodeStore,materialize,after,1",
    "sgpu_decl.backends.host.host_spec,,write_atomic,after,1",
    "sgpu_decl.backends.host.host_spec,,write_atomic,after,2",
    "sgpu_decl.agent.launching.agent_launch,,launch,before,1",
    "sgpu_decl.agent.launching.agent_launch,,launch,after,1",
    f"{WRITER},end,before,1",
    f"{WRITER},launched,after,1",
    f"{WRITER},end,after,1",
    f"{WRITER},plan_applied,before,1",
    f"{WRITER},plan_applied,after,1",
]


ENVIRONMENTS = "sgpu_decl.environments.environment_store,EnvironmentStore"
ENVIRONMENT_STEPS = [
    f"{ENVIRONMENTS},put,before,1",
    f"{ENVIRONMENTS},_write,after,1",
    f"{ENVIRONMENTS},put,after,1",
    f"{ENVIRONMENTS},hydrate,before,1",
    "sgpu_decl.content.hydration,,_make_folders,before,1",
    "sgpu_decl.content.hydration,,install,before,1",
    "sgpu_decl.content.hydration,,install,after,1",
    f"{ENVIRONMENTS},refer,after,1",
    "sgpu_decl.agent.launching.agent_launch,,launch,before,1",
    f"{WRITER},end,after,1",
]


@pytest.fixture
def project(folder: Path) -> Path:
    (folder / "run.yaml").write_text(RUN)
    return folder


def asked(project: Path, *words: str) -> tuple[int, str]:
    """The exit code and the answer of a command that only reads, in this process."""
    said = io.StringIO()
    with chdir(project), redirect_stdout(said):
        code = main(words)
    return code, said.getvalue()


@pytest.mark.parametrize("step", sampled(STEPS))
def test_killed_at_a_step_and_applied_again_it_ran_exactly_once(project: Path, step: str) -> None:
    _dies_and_converges(project, step)


@pytest.mark.parametrize("step", sampled(ENVIRONMENT_STEPS))
def test_killed_while_an_environment_is_staged_it_ran_exactly_once(
    project: Path, tmp_path: Path, step: str
) -> None:
    venv = tmp_path / "venv"
    create(venv, symlinks=True)
    (project / "run.yaml").write_text(f"{RUN}env: {{snapshot: true, python: {venv}/bin/python}}\n")

    _dies_and_converges(project, step)

    store = tmp_path / "data/sgpu/store/environments"
    collected = sgpu(project, "gc", "-y")
    assert collected.code == 0, collected.err
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
    assert again.code == 0, again.err

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


# Every launch of `apply` fails. Dies at the n-th thing that it deletes of an attempt, or after a
# file of that name; folders are listed in the order of names.
_DELETING = """\
import os, signal, sys
from sgpu_decl.agent.launching import agent_launch
nth, name = (int(sys.argv[1]), None) if sys.argv[1].isdigit() else (0, sys.argv[1])
deleting = sys.argv[2] != "apply"
deleted = []
def watch(event, arguments):
    if deleting and event in ("os.remove", "os.rmdir"):
        deleted.append(os.path.basename(arguments[0]))
        if len(deleted) == nth or name in deleted[:-1]:
            os.kill(os.getpid(), signal.SIGKILL)
listed = os.scandir
class ByName:
    def __init__(self, path="."):
        with listed(path) as entries:
            self.entries = iter(sorted(entries, key=lambda entry: entry.name))
    def __iter__(self): return self
    def __next__(self): return next(self.entries)
    def __enter__(self): return self
    def __exit__(self, *_): pass
    def close(self): pass
os.scandir = ByName
def launch(folder, **_):
    global deleting
    deleting = True
    raise OSError("no process left")
agent_launch.launch = launch
from sgpu_decl.cli.main import main
sys.addaudithook(watch)
sys.exit(main(sys.argv[2:]))
"""


def _killed_while_deleting(project: Path, at: int | str, *words: str) -> None:
    command = [sys.executable, "-c", _DELETING, str(at), *words]
    died = subprocess.run(command, cwd=project, capture_output=True, check=False)
    assert died.returncode == -signal.SIGKILL, died.stderr.decode()


@pytest.mark.parametrize("at", [1, 2, "code"])
def test_killed_while_a_failed_launch_is_cleared_it_ran_exactly_once(
    project: Path, at: int | str
) -> None:
    _killed_while_deleting(project, at, "apply", "-y", "--detach", "run.yaml")

    again = sgpu(project, "apply", "-y", "run.yaml")

    assert again.code == 0, again.err
    assert (project / "launches.log").read_text() == "launched\n"
    assert sgpu(project, "gc", "-y").code == 0
    assert [path.name for path in (project / ".sgpu/default/runs/once").iterdir()] == ["1"]


@pytest.mark.parametrize("at", [1, "outcome.json", "spec.json"])
def test_killed_while_gc_frees_an_attempt_it_is_what_it_was(project: Path, at: int | str) -> None:
    (project / "run.yaml").write_text(RUN.replace("echo", "exit 3; echo"))
    assert sgpu(project, "apply", "-y", "run.yaml").code == 5

    _killed_while_deleting(project, at, "gc", "-y", "--all", "--keep-last", "0")

    _, status = asked(project, "status", "-o", "json")
    assert [run["state"] for run in json.loads(status)["data"]["runs"]] == ["failed"]
    assert sgpu(project, "gc", "-y", "--all", "--keep-last", "0").code == 0
    assert not list((project / ".sgpu/default/runs").glob("*/*"))


def test_a_saved_plan_is_applied_once(project: Path) -> None:
    assert sgpu(project, "plan", "--out", "saved.plan", "run.yaml").code == 0
    first = sgpu(project, "apply", "saved.plan")
    assert first.code == 0, first.err

    second = sgpu(project, "apply", "saved.plan")

    assert second.code == 3
    assert "applied already" in second.err
    assert (project / "launches.log").read_text() == "launched\n"


def test_a_saved_plan_runs_the_bytes_that_were_planned(project: Path) -> None:
    (project / "run.yaml").write_text(
        "name: pinned\ngpus: 1\ntype: CPU\nentrypoint: say.py:main\nmlflow: {enabled: false}\n"
    )
    (project / "say.py").write_text("def main():\n    return 'planned'\n")
    assert sgpu(project, "plan", "--out", "saved.plan", "run.yaml").code == 0
    (project / "say.py").write_text("def main():\n    return 'edited'\n")

    applied = sgpu(project, "apply", "saved.plan")

    assert applied.code == 0, applied.err
    answer = json.loads(sgpu(project, "results", "pinned", "-o", "json").out)
    assert answer["data"]["results"] == [{"rank": 0, "value": "planned"}]


def test_a_plan_is_stale_once_something_else_was_applied(project: Path) -> None:
    assert sgpu(project, "plan", "--out", "saved.plan", "run.yaml").code == 0
    assert sgpu(project, "apply", "-y", "run.yaml").code == 0

    stale = sgpu(project, "apply", "saved.plan", "-o", "json")

    assert stale.code == 3
    assert json.loads(stale.out)["error"]["code"] in {"stale_plan", "other_lineage"}


def test_destroying_twice_is_harmless(project: Path) -> None:
    assert sgpu(project, "apply", "-y", "run.yaml").code == 0
    first = sgpu(project, "destroy", "-y", "run.yaml")
    second = sgpu(project, "destroy", "-y", "run.yaml")
    assert (first.code, second.code) == (0, 0), first.err + second.err

    assert sgpu(project, "apply", "-y", "run.yaml").code == 0
    shown = json.loads(sgpu(project, "status", "-o", "json").out)["data"]["runs"]
    assert [run["attempt"] for run in shown] == [2]


def test_a_moved_run_keeps_its_history_and_its_logs(project: Path) -> None:
    (project / "run.yaml").write_text(
        "name: old\ngpus: 1\ntype: CPU\ncommand: [echo, kept]\nmlflow: {enabled: false}\n"
    )
    assert sgpu(project, "apply", "-y", "run.yaml").code == 0

    moved = sgpu(project, "state", "mv", "run.old", "run.new")

    assert moved.code == 0, moved.err
    assert sgpu(project, "logs", "new").out == "kept\n"
    (project / "run.yaml").write_text(
        "name: new\ngpus: 1\ntype: CPU\ncommand: [echo, kept]\nmlflow: {enabled: false}\n"
    )
    plan = sgpu(project, "plan", "--detailed-exitcode", "run.yaml")
    assert plan.code == 0, plan.out


RENAMING_STEPS = [
    f"{WRITER},move,before,1",
    f"{WRITER},move,after,1",
    "sgpu_decl.backends.attempt_layout,AttemptLayout,move,after,1",
]


@pytest.mark.parametrize("step", sampled(RENAMING_STEPS, quick=1))
def test_killed_while_a_run_is_renamed_it_has_its_history_and_its_folders(
    project: Path, step: str
) -> None:
    assert sgpu(project, "apply", "-y", "run.yaml").code == 0
    renamed = RUN.replace("once", "renamed\nrenamed_from: once").replace("echo", "echo again;echo")
    (project / "run.yaml").write_text(renamed)
    died = subprocess.run(
        dying(step, "apply", "-y", "--detach", "run.yaml"),
        cwd=project,
        capture_output=True,
        check=False,
    )
    assert died.returncode == -signal.SIGKILL, died.stderr.decode()

    again = sgpu(project, "apply", "-y", "run.yaml")

    assert again.code == 0, again.err
    assert (project / "launches.log").read_text() == "launched\n" * 2
    assert sgpu(project, "logs", "renamed").out == "again\n"
    assert sgpu(project, "logs", "renamed#1").code == 0
    left = project / ".sgpu/default/runs"
    folders = sorted(path.relative_to(left).as_posix() for path in left.glob("*/*"))
    assert folders == ["renamed/1", "renamed/2"]
    changes, plan = asked(project, "plan", "--detailed-exitcode", "run.yaml")
    assert changes == 0, plan
