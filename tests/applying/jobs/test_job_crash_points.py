"""`kill -9` at any durable step of a job's change converges, with one job."""

import os
import signal
import subprocess

import pytest

from sgpu_decl.model.plan import Action
from sgpu_decl.testing.contracts.killed_commands import dying
from tests.applying.jobs.conftest import JOB, Shop
from tests.sampling import sampled

WRITER = "sgpu_decl.storing.sqlite.writer,SqliteWriter"
JOBS = "sgpu_decl.backends.databricks.jobs.workspace_jobs,WorkspaceJobs"


def steps(*calls: str) -> list[str]:
    return [f"{call},{when},1" for call in calls for when in ("before", "after")]


CREATING = steps(f"{WRITER},begin", f"{JOBS},create", f"{WRITER},made", f"{WRITER},plan_applied")
CHANGING = steps(f"{JOBS},reset", f"{WRITER},record_resource")
DELETING = steps(f"{JOBS},delete", f"{WRITER},record_resource")


def dies(shop: Shop, step: str) -> None:
    died = subprocess.run(
        dying(step, "apply", "-y", "sgpu.yml"),
        cwd=shop.folder, env=dict(os.environ), capture_output=True, check=False,
    )  # fmt: skip
    assert died.returncode == -signal.SIGKILL, died.stderr.decode()


def converges(shop: Shop) -> None:
    assert shop.apply().failed == ()
    assert shop.session().state.pull()["intents"] == []
    assert {change.action for change in shop.plan().changes} <= {Action.NO_OP}


@pytest.mark.parametrize("step", sampled(CREATING, quick=1))
def test_killed_while_a_job_is_made_it_is_made_once(shop: Shop, step: str) -> None:
    dies(shop, step)
    converges(shop)
    assert len(shop.jobs()) == 1


@pytest.mark.parametrize("step", sampled(CHANGING, quick=1))
def test_killed_while_a_job_is_changed_it_is_changed(shop: Shop, step: str) -> None:
    shop.apply()
    shop.write(JOB.replace("team: ml", "team: web"))
    dies(shop, step)
    converges(shop)
    assert shop.job()[1]["tags"]["team"] == "web"


@pytest.mark.parametrize("step", sampled(DELETING, quick=1))
def test_killed_while_a_job_is_deleted_it_is_deleted(shop: Shop, step: str) -> None:
    shop.apply()
    shop.write("project: {name: empty}\n")
    dies(shop, step)
    converges(shop)
    assert shop.jobs() == {}
