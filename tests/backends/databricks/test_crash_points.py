"""`kill -9` at any durable step of an apply to a workspace converges, with one run there."""

import subprocess
import sys
from dataclasses import replace

import pytest

from sgpu_decl.model.attempt import AttemptState
from sgpu_decl.model.plan import Action
from tests.backends.databricks.bench import SLEEPS, DatabricksBench, Launched
from tests.backends.databricks.conftest import CODE
from tests.sampling import sampled
from tests.support import PATIENCE

WRITER = "sgpu_decl.storing.sqlite.writer,SqliteWriter"
DATABRICKS = "sgpu_decl.backends.databricks"
LAUNCHES = "sgpu_decl.backends.remote.launching.remote_launches,RemoteLaunches"
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
    bench: DatabricksBench, step: str
) -> None:
    bench.killed(step, "-y", "--detach", "run.yaml")

    opened = bench.open()
    applied = opened.apply(opened.plan())

    refs = (*applied.launched, *applied.adopted) or opened.runs.find("hello")
    opened.runs.wait(refs, timeout=PATIENCE)
    opened.record_ended()
    assert [(str(ref), opened.runs.status(ref).state) for ref in refs] == [
        ("hello#1", AttemptState.SUCCEEDED)
    ]
    assert bench.runs == 1
    assert bench.change().action is Action.NO_OP


@pytest.mark.expensive
@pytest.mark.parametrize(
    "step",
    [
        "sgpu_decl.runs.project_runs,ProjectRuns,wait,before,1",
        f"{DATABRICKS}.launching.databricks_launcher,DatabricksLauncher,launch,before,1",
    ],
)
def test_a_replace_that_was_killed_still_waits_for_the_old_attempt(
    bench: DatabricksBench, step: str
) -> None:
    bench.code(SLEEPS)
    first = bench.launch()
    first.up()
    bench.code(CODE)
    planned = ("plan", "--on-active", "replace", "--out", "replace.plan", "run.yaml")
    subprocess.run([sys.executable, "-m", "sgpu_decl", *planned], cwd=bench.project, check=True)
    bench.killed(step, "--detach", "replace.plan")

    again = bench.open()
    again.apply(again.plan())
    refs = [first.ref, replace(first.ref, number=2)]

    old, new = (Launched(again, ref).ended().status for ref in refs)
    assert (old.state, new.state) == (AttemptState.CANCELLED, AttemptState.SUCCEEDED)
    assert old.ended_at is not None
    assert new.started_at is not None
    assert old.ended_at <= new.started_at
