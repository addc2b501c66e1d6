"""`kill -9` at any durable step of an apply to a workspace converges, with one run there."""

import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from sgpu_decl.api import Session
from sgpu_decl.model.attempt import AttemptState
from sgpu_decl.model.plan import Action
from sgpu_decl.testing.contracts.killed_commands import dying
from sgpu_decl.testing.workspace import WorkspaceServer
from sgpu_decl.testing.workspace.executing.records import RunRecords
from tests.sampling import sampled
from tests.support import PATIENCE

WRITER = "sgpu_decl.storing.sqlite.writer,SqliteWriter"
DATABRICKS = "sgpu_decl.backends.databricks"
LAUNCHES = "sgpu_decl.backends.remote.launching.remote_launches,RemoteLaunches"
SLEEPS = "import time\ndef main(n):\n    print('up', flush=True)\n    time.sleep(600)\n"
STEPS = [
    f"{WRITER},begin,after,1",
    f"{DATABRICKS}.api.workspace_files,WorkspacePlace,put,after,1",
    f"{DATABRICKS}.api.workspace_files,WorkspacePlace,put,after,3",
    f"{DATABRICKS}.api.workspace_files,WorkspacePlace,put,after,5",
    "sgpu_decl.backends.remote.launching.uploader,,fill_launch_folder,after,1",
    f"{LAUNCHES},mark,before,1",
    f"{LAUNCHES},mark,after,1",
    f"{DATABRICKS}.launching.databricks_launcher,DatabricksLauncher,start,after,1",
    f"{LAUNCHES},mark,after,2",
    f"{WRITER},launched,before,1",
    f"{WRITER},launched,after,1",
]


@pytest.mark.parametrize("step", sampled(STEPS, quick=1))
def test_killed_at_a_step_and_applied_again_there_is_one_run(
    session: Callable[[], Session],
    project: Path,
    server: WorkspaceServer,
    token: str,
    step: str,
) -> None:
    died = subprocess.run(
        dying(step, "apply", "-y", "--detach", "run.yaml"),
        cwd=project,
        capture_output=True,
        check=False,
    )
    assert died.returncode == -signal.SIGKILL, died.stderr.decode()

    opened = session()
    applied = opened.apply(opened.plan())

    refs = (*applied.launched, *applied.adopted) or opened.runs.find("hello")
    opened.runs.wait(refs, timeout=PATIENCE)
    opened.record_ended()
    assert [(str(ref), opened.runs.status(ref).state) for ref in refs] == [
        ("hello#1", AttemptState.SUCCEEDED)
    ]
    assert len(RunRecords(server.tenants.of_token(token)).all()) == 1
    again = session().plan().plan
    assert [change.action for change in again.changes] == [Action.NO_OP]


@pytest.mark.expensive
@pytest.mark.parametrize(
    "step",
    [
        "sgpu_decl.runs.project_runs,ProjectRuns,wait,before,1",
        f"{DATABRICKS}.launching.databricks_launcher,DatabricksLauncher,launch,before,1",
    ],
)
def test_a_replace_that_was_killed_still_waits_for_the_old_attempt(
    session: Callable[[], Session], project: Path, step: str
) -> None:
    code = (project / "train.py").read_text()
    (project / "train.py").write_text(SLEEPS)
    opened = session()
    (first,) = opened.apply(opened.plan()).launched
    next(log for log in opened.runs.logs(first, ranks=(0,), follow=True) if log is not None)
    (project / "train.py").write_text(code)
    planned = ("plan", "--on-active", "replace", "--out", "replace.plan", "run.yaml")
    subprocess.run([sys.executable, "-m", "sgpu_decl", *planned], cwd=project, check=True)
    words = ("apply", "--detach", "replace.plan")
    died = subprocess.run(dying(step, *words), cwd=project, capture_output=True, check=False)
    assert died.returncode == -signal.SIGKILL, died.stderr.decode()

    again = session()
    again.apply(again.plan())
    refs = [first, replace(first, number=2)]
    again.runs.wait(refs, timeout=PATIENCE)

    old, new = (again.runs.status(ref) for ref in refs)
    assert (old.state, new.state) == (AttemptState.CANCELLED, AttemptState.SUCCEEDED)
    assert old.ended_at is not None
    assert new.started_at is not None
    assert old.ended_at <= new.started_at
