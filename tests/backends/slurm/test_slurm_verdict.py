from typing import Any

import pytest

from sgpu_decl.backends.remote.watching.remote_status import PlatformEnding
from sgpu_decl.backends.slurm.cluster_state import SlurmJob
from sgpu_decl.backends.slurm.slurm_verdict import judge

STARTED = {"state": "started", "started_at": "2026-11-30T15:00:00Z"}


def job(state: str, reason: str = "None", start: int | None = None) -> SlurmJob:
    return SlurmJob(id="7", name="a-1", state=state, reason=reason, started_at=start)


def ended(stop: str | None, code: int = 143) -> dict[str, Any]:
    return {**STARTED, "state": "ended", "stop": stop, "code": code}


@pytest.mark.parametrize(
    ("seen", "note", "cancelled", "state"),
    [
        (job("PENDING"), {}, False, "queued"),
        (job("CONFIGURING"), {}, False, "starting"),
        (job("RUNNING"), {}, False, "starting"),
        (job("RUNNING"), STARTED, False, "running"),
        (job("RUNNING"), STARTED, True, "stopping"),
        (job("COMPLETING"), ended("signal"), False, "stopping"),
        (job("PENDING"), ended("signal"), False, "queued"),  # it starts again
    ],
)
def test_an_attempt_that_goes_on(
    seen: SlurmJob, note: dict[str, Any], cancelled: bool, state: str
) -> None:
    found = judge(seen, note, cancelled=cancelled)

    assert not isinstance(found, PlatformEnding)
    assert found["state"] == state


@pytest.mark.parametrize(
    ("seen", "note", "cancelled", "state", "failure"),
    [
        (None, ended(None, 0), False, "succeeded", None),
        (None, ended(None, 1), False, "failed", "exit_code"),
        (job("COMPLETED"), ended("cancelled"), True, "cancelled", None),
        (None, ended("cancelled"), True, "cancelled", None),
        (job("FAILED"), ended("time"), False, "failed", "timeout"),
        (None, ended("time"), False, "failed", "timeout"),
        (
            job("FAILED"),
            {**ended("refused"), "refused": "node 1 (n2): full", "class": "staging_failed"},
            False,
            "failed",
            "staging_failed",
        ),
        (job("FAILED"), ended("killed", 137), False, "failed", "killed"),
        (job("OUT_OF_MEMORY"), ended("killed", 137), False, "failed", "oom"),
        (job("TIMEOUT"), STARTED, False, "failed", "timeout"),
        (job("PREEMPTED"), ended("signal"), False, "failed", "preempted"),
        (job("PREEMPTED"), STARTED, True, "failed", "preempted"),
        (job("NODE_FAIL"), STARTED, False, "failed", "node_lost"),
        (job("OUT_OF_MEMORY"), STARTED, False, "failed", "oom"),
        (job("BOOT_FAIL"), {}, False, "failed", "capacity"),
        (job("CANCELLED"), {}, True, "cancelled", None),
        (job("CANCELLED"), STARTED, False, "cancelled", None),
        (None, ended("signal"), False, "cancelled", None),
        (None, {}, True, "cancelled", None),
        (None, {}, False, "lost", "supervisor_lost"),
        (None, STARTED, False, "lost", "supervisor_lost"),
        (job("FAILED"), STARTED, False, "lost", "supervisor_lost"),
        (job("FAILED"), {}, False, "failed", "launch_failed"),
    ],
)
def test_an_attempt_that_ended(
    seen: SlurmJob | None, note: dict[str, Any], cancelled: bool, state: str, failure: str | None
) -> None:
    found = judge(seen, note, cancelled=cancelled)

    assert isinstance(found, PlatformEnding)
    assert (found.state, found.failure) == (state, failure)


@pytest.mark.parametrize(
    ("seen", "words"),
    [
        (job("PENDING", "Priority"), "jobs of higher priority"),
        (
            job("PENDING", "Nodes required for job are DOWN, DRAINED or reserved for jobs"),
            "nodes that are down, drained or reserved",
        ),
        (job("PENDING", "JobHeldUser"), "its user, who holds it (`scontrol release`)"),
        (job("PENDING", "QOSMaxGRESPerUser"), "a limit of its account or QOS (QOSMaxGRESPerUser)"),
        (job("PENDING", "ReqNodeNotAvail, UnavailableNodes:n2"), "nodes that are down or reserved"),
        (job("PENDING", "SomethingNew"), "Slurm (SomethingNew)"),
        (
            job("PENDING", "Resources", 1_796_050_800),
            "nodes to become free; Slurm expects it to start at 2026-11-30 15:00 UTC",
        ),
    ],
)
def test_why_a_job_waits_is_said_in_words(seen: SlurmJob, words: str) -> None:
    found = judge(seen, {}, cancelled=False)

    assert not isinstance(found, PlatformEnding)
    assert found["waiting_for"] == words


def test_a_job_that_comes_after_others_waits_for_them_by_name() -> None:
    early = {"state": "waiting", "waiting_for": "prep#1"}  # Slurm let it begin all the same

    by_slurm = judge(job("PENDING", "Dependency", 7), {}, cancelled=False, behind="prep#1")
    by_itself = judge(job("RUNNING"), early, cancelled=False)

    assert by_slurm == by_itself == {"state": "queued", "waiting_for": "prep#1"}
