"""The state of an attempt. The driver's outcome counts first, then the outcome of the node agents,
then Ray's job.

| seen | state |
|---|---|
| the driver's outcome | that, whatever Ray says |
| an outcome of the agents that no retry follows, and a driver that is gone | that, too |
| no such job | lost |
| PENDING | starting; after a while it waits for Ray, which starts a process for each job |
| RUNNING, and the driver's node is not alive | lost: Ray says RUNNING after the head restarted |
| STOPPED | cancelled: by sgpu, or at the cluster |
| FAILED with `NO_STORAGE` | failed: the driver could not use the launch folder, or not join |
| SUCCEEDED, or FAILED with the exit code of a run | stopping for a minute, then lost: the outcome \
of the driver is not visible |
| FAILED | by `error_type`: the driver's own end is a lost supervisor, all else the platform's |

A cluster that does not answer says nothing of an attempt: then the two outcomes count alone. The
client asks this of its attempts, and the driver of a run that comes after another one of that one.
"""

from collections.abc import Mapping
from typing import Any

from sgpu_decl.agent.attempt.attempt_record import cancelled_outcome, lost_outcome
from sgpu_decl.agent.retry_rule import why_ended

ACTIVE = ("PENDING", "RUNNING")
"""States of jobs that go on."""

_OWN_END = "JOB_ENTRYPOINT_COMMAND_ERROR"
_VISIBLE = 60.0  # seconds until this machine sees what the driver wrote last
_SLOW = 20.0  # seconds in which Ray usually starts a driver
NO_STORAGE = 72  # sysexits.h: EX_OSFILE
"""The exit code of a driver that cannot use the launch folder: not one of the run."""


def is_final(outcome: Mapping[str, Any], retry: Mapping[str, Any], starts: int = 0) -> bool:
    """Whether an attempt has ended with an outcome of its agents: no `retry` follows it.

    Args:
        retry: when the driver starts ranks on other nodes (`on`), and how often (`max`).
        starts: how often ranks were started, as far as that is known beside the outcome.
    """
    return why_ended(outcome, retry, starts, other_nodes=True) is not None


def final_outcome(
    outcome: Mapping[str, Any] | None, driver: Mapping[str, Any], retry: Mapping[str, Any]
) -> Mapping[str, Any] | None:
    """Return the outcome that the agents brought back last, if an attempt whose driver is gone
    ended with it, else None. `driver` is what the driver wrote last; see `is_final`."""
    if outcome is None or not is_final(outcome, retry):
        return None
    if outcome["state"] == "cancelled" and driver["state"] != "stopping":
        return None  # nobody asked for it: the agents stop when the driver is gone
    return outcome


def judge(
    job: Mapping[str, Any] | None,
    driver: Mapping[str, Any],
    outcome: Mapping[str, Any] | None,
    *,
    driver_alive: bool,
    now: float,
    stop: str | None = None,
) -> Mapping[str, Any]:
    """Return the status of an attempt whose driver wrote no outcome, as `view_in` reads it.

    Args:
        job: its job; None if the cluster has none.
        driver: what the driver wrote last.
        outcome: see `final_outcome`; None while the driver goes on.
        driver_alive: whether the node of the driver is.
        now: seconds since 1970.
        stop: why sgpu had Ray stop the job, if it did.
    """
    if outcome is not None:
        return outcome
    if job is None:
        return _lost(
            driver,
            "supervisor_lost",
            "the cluster has no such job: it was deleted, or Ray started again",
        )
    status = job["status"]
    if status == "PENDING":
        slow = now - (job.get("start_time") or now * 1000) / 1000 > _SLOW
        waiting = {"waiting_for": "Ray to start its driver"} if slow else {}
        return {**driver, "state": "starting", **waiting}
    if status == "RUNNING":
        if driver_alive:
            return driver
        return _lost(driver, "node_lost", "the node of its driver is not alive")
    if status == "STOPPED":
        summary = stop or "its job was stopped at the cluster"
        return cancelled_outcome(dict(driver), summary, "ray")
    code = job.get("driver_exit_code")
    if code == NO_STORAGE:
        said = str(job.get("message") or "see the log of its job").strip().rpartition("\n")[2]
        return _failed(driver, "staging_failed", "the driver could not start on the head node: "
                       f"{said.removeprefix('sgpu: ')}")  # fmt: skip
    # Ray 2.49 names no type for that.
    own_end = job.get("error_type") == _OWN_END or (not job.get("error_type") and code is not None)
    own = status == "SUCCEEDED" or (own_end and (code or 0) > 0)
    ended = (job.get("end_time") or 0) / 1000
    if own and now - ended < _VISIBLE:
        return {**driver, "state": "stopping"}  # it wrote an outcome, which is not seen here yet
    if status == "SUCCEEDED":
        return _lost(driver, "supervisor_lost", "its driver ended, and the outcome in its launch "
                     "folder is not visible on this machine")  # fmt: skip
    message = " ".join(str(job.get("message") or "").split())
    if own_end:
        return _lost(driver, "supervisor_lost", f"its driver was killed or crashed: {message}")
    return _failed(driver, "platform", f"Ray could not run its driver: {message}")


def _lost(seen: Mapping[str, Any], failure: str, summary: str) -> dict[str, Any]:
    return lost_outcome(dict(seen), failure, summary, "ray")


def _failed(seen: Mapping[str, Any], failure: str, summary: str) -> dict[str, Any]:
    return {**_lost(seen, failure, summary), "state": "failed"}
