"""`kill -9` at any durable step of an apply to a workspace converges, with one run there."""

import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from sgpu_decl.api import Session
from sgpu_decl.model.attempt import AttemptState
from sgpu_decl.model.plan import Action
from sgpu_decl.testing.workspace import WorkspaceServer
from sgpu_decl.testing.workspace.executing.records import Runs
from tests.dying import dying

WRITER = "sgpu_decl.storing.writing,SqliteWriter"
DATABRICKS = "sgpu_decl.backends.databricks"
STEPS = [
    f"{WRITER},begin,after,1",
    f"{DATABRICKS}.launches,Launches,begin,after,1",
    f"{DATABRICKS}.files,WorkspaceFiles,put,after,1",
    f"{DATABRICKS}.files,WorkspaceFiles,put,after,3",
    f"{DATABRICKS}.files,WorkspaceFiles,put,after,5",
    f"{DATABRICKS}.staging,,bring_launch,after,1",
    f"{DATABRICKS}.launches,Launches,submitted,before,1",
    f"{DATABRICKS}.launches,,write_handle,before,3",
    f"{DATABRICKS}.launches,Launches,submitted,after,1",
    f"{WRITER},launched,before,1",
    f"{WRITER},launched,after,1",
]


@pytest.mark.parametrize("step", STEPS)
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
    opened.runs.wait(refs, timeout=120)
    opened.record_ended()
    assert [(str(ref), opened.runs.status(ref).state) for ref in refs] == [
        ("hello#1", AttemptState.SUCCEEDED)
    ]
    assert len(Runs(server.tenants.of_token(token)).all()) == 1
    again = session().plan()
    assert [change.action for change in again.changes] == [Action.NO_OP]
