"""How an attempt stands, by its job and by the note that its job left in the launch folder.

| seen | state |
|---|---|
| a note of the end, and nobody had asked for it | ended, by its exit code |
| a job that waits | queued, with Slurm's reason in words |
| a job whose note says that it waits | queued: it began before what it comes after had ended |
| a job that goes on, and no note of a start | starting |
| a job that goes on | running, or stopping once that was asked |
| a job that ended | by its state |
| no job, and a note of the end | by the reason that it gives |
| no job, a cancellation, and no note | cancelled while it waited |
| no job | lost: Slurm forgets jobs soon after their end |

States of jobs: https://slurm.schedmd.com/job_state_codes.html; reasons why they wait:
https://slurm.schedmd.com/job_reason_codes.html
"""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from sgpu_decl.backends.remote.watching.remote_status import PlatformEnding
from sgpu_decl.backends.slurm.cluster_state import SlurmJob
from sgpu_decl.model.attempt import AttemptState, FailureClass

WAITING = frozenset({"PENDING", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED", "RESV_DEL_HOLD",
                     "SPECIAL_EXIT"})  # fmt: skip
RUNNING = frozenset({"CONFIGURING", "RUNNING", "SUSPENDED", "STOPPED", "SIGNALING", "RESIZING",
                     "STAGE_OUT", "POWER_UP_NODE"})  # fmt: skip
ACTIVE = RUNNING | {"COMPLETING"}

_ENDS = {
    "PREEMPTED": (FailureClass.PREEMPTED, "Slurm gave its nodes to a job of higher priority"),
    "NODE_FAIL": (FailureClass.NODE_LOST, "a node failed"),
    "BOOT_FAIL": (FailureClass.CAPACITY, "a node could not be started"),
    "TIMEOUT": (FailureClass.TIMEOUT, "its job came to its time limit"),
    "DEADLINE": (FailureClass.PLATFORM, "its job could not start in time"),
    "OUT_OF_MEMORY": (FailureClass.OOM, "its job used more memory than Slurm gave it (`--mem`)"),
    "LAUNCH_FAILED": (FailureClass.PLATFORM, "Slurm could not start its job"),
    "RECONFIG_FAIL": (FailureClass.PLATFORM, "Slurm could not configure its nodes"),
}  # fmt: skip
_REASONS = {
    "Resources": "nodes to become free",
    "Priority": "jobs of higher priority",
    "Dependency": "another job",
    "BeginTime": "the time at which it may begin",
    "JobHeldUser": "its user, who holds it (`scontrol release`)",
    "JobHeldAdmin": "an administrator, who holds it",
    "PartitionDown": "its partition, which is down",
    "PartitionInactive": "its partition, which is down",
    "PartitionTimeLimit": "a partition that allows its `timeout`",
    "PartitionNodeLimit": "a partition that allows so many nodes",
    "ReqNodeNotAvail": "nodes that are down or reserved",
    "Nodes required for job are DOWN": "nodes that are down, drained or reserved",
    "Reservation": "its reservation",
    "Licenses": "a license",
    "JobArrayTaskLimit": "max_parallel",  # see `views/status_text`
}
_LIMITS = ("Assoc", "QOS", "MaxCpu", "MaxGRES", "MaxJobs", "MaxMem", "MaxNode", "MaxSubmit")


def judge(
    job: SlurmJob | None,
    note: Mapping[str, Any],
    *,
    cancelled: bool,
    words: str = "",
    behind: str = "",
) -> Mapping[str, Any] | PlatformEnding:
    """Return the status of an attempt that goes on, as `view_in` reads it, or how it ended.

    Args:
        job: its job, None if Slurm has none.
        note: what its job wrote last; empty before it wrote something.
        cancelled: whether sgpu has asked it to stop.
        words: the last line of the log of its job.
        behind: the attempts that it comes after.
    """
    ended = note.get("state") == "ended"
    if ended and note["stop"] is None:
        return _by_code(note)
    if job is not None and job.state in WAITING:
        return {"state": "queued", "waiting_for": _reason(job, behind)}
    if job is not None and job.state in ACTIVE:
        if note.get("state") == "waiting" and not cancelled:
            return {"state": "queued", "waiting_for": note["waiting_for"]}
        over = cancelled or note.get("state") in ("ended", "again")
        state = "stopping" if over else "running" if note else "starting"
        return {"state": state, "started_at": note.get("started_at")}
    if job is not None and job.state in _ENDS:
        return _failed(*_ENDS[job.state])
    if cancelled:
        return PlatformEnding(state=AttemptState.CANCELLED)
    if ended and note["stop"] == "time":
        return _failed(FailureClass.TIMEOUT, note.get("why") or _ENDS["TIMEOUT"][1])
    if ended and note["stop"] == "refused":
        return _failed(FailureClass(note["class"]), note["refused"])
    if ended and note["stop"] == "killed":
        return _failed(FailureClass.KILLED, "the program of a node was killed")
    if ended or (job is not None and job.state == "CANCELLED"):
        return PlatformEnding(
            state=AttemptState.CANCELLED, message="its job was cancelled at Slurm"
        )
    if job is not None and not note:
        why = words or "it left no log: do its nodes see `storage`, and may write there?"
        return _failed(FailureClass.LAUNCH_FAILED, f"its job ended before its ranks began: {why}")
    known = f"its job ended as {job.state}" if job else "Slurm has no such job any more"
    return PlatformEnding(
        state=AttemptState.LOST,
        failure=FailureClass.SUPERVISOR_LOST,
        message=f"{known}, and it left no word of its end",
    )


def times(job: SlurmJob | None, note: Mapping[str, Any]) -> dict[str, str | None]:
    """When an attempt that ended began and ended, as `view_in` reads it."""
    started = _stamp(job.started_at if job is not None else None)
    ended = _stamp(job.ended_at if job is not None else None)
    return {
        "started_at": note.get("started_at") or started,
        "ended_at": note.get("ended_at") or ended or datetime.now(UTC).isoformat(),
    }


def _by_code(note: Mapping[str, Any]) -> PlatformEnding:
    if note["code"] == 0:
        return PlatformEnding(state=AttemptState.SUCCEEDED, ran=True)
    return _failed(FailureClass.EXIT_CODE, f"its nodes ended with {note['code']}")


def _failed(failure: FailureClass, message: str) -> PlatformEnding:
    return PlatformEnding(state=AttemptState.FAILED, failure=failure, message=message, ran=True)


def _reason(job: SlurmJob, behind: str) -> str:
    reason = job.reason.partition(",")[0].strip("()")
    if reason == "Dependency" and behind:
        return behind
    words = _REASONS.get(reason)
    if words is None and reason.startswith(_LIMITS):
        words = f"a limit of its account or QOS ({reason})"
    if words is None:
        words = "Slurm" if reason in ("None", "") else f"Slurm ({reason})"
    if job.started_at is None:
        return words
    expected = datetime.fromtimestamp(job.started_at, UTC)
    return f"{words}; Slurm expects it to start at {expected:%Y-%m-%d %H:%M} UTC"


def _stamp(seconds: int | None) -> str | None:
    return datetime.fromtimestamp(seconds, UTC).isoformat() if seconds is not None else None
