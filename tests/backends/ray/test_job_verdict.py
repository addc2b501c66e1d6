"""How an attempt stands, by its driver, its agents and Ray. Jobs are as Ray 2.60 and 2.49.1 answer
(`JobDetails` in `ray/dashboard/modules/job/pydantic_models.py`)."""

from collections.abc import Mapping
from typing import Any

import pytest

from sgpu_decl.backends.ray.cluster.job_verdict import NO_STORAGE, final_outcome, judge

RUNNING = {"v": 1, "state": "running", "started_at": "2026-11-23T08:00:00.000Z"}
SUCCEEDED = {"state": "succeeded", "exit_code": 0, "class": None}
NEVER = {"max": 0, "on": ["infra"]}
NOW = 1_800_000_000.0
OWN_END = "JOB_ENTRYPOINT_COMMAND_ERROR"
# As `JobSupervisor.run` writes them (`ray/dashboard/modules/job/job_supervisor.py`).
LAST_LINES = "Job entrypoint command failed with exit code 72, last available logs (truncated):\n"
NO_LINES = "Job entrypoint command failed with exit code 72. No logs available."


def job(status: str, *, ago: float = 600.0, **fields: Any) -> dict[str, Any]:
    return {"status": status, "end_time": int((NOW - ago) * 1000), **fields}


def judged(
    of: Mapping[str, Any] | None,
    outcome: Mapping[str, Any] | None = None,
    *,
    driver_alive: bool = True,
) -> tuple[str, str | None]:
    seen = judge(of, RUNNING, outcome, driver_alive=driver_alive, now=NOW)
    return seen["state"], seen.get("class")


@pytest.mark.parametrize(
    ("of", "expected"),
    [
        (job("PENDING"), ("starting", None)),
        (job("RUNNING"), ("running", None)),
        (None, ("lost", "supervisor_lost")),
        (job("STOPPED"), ("cancelled", None)),
        (job("FAILED", error_type=OWN_END, driver_exit_code=-9), ("lost", "supervisor_lost")),
        (job("FAILED", error_type=None, driver_exit_code=-9), ("lost", "supervisor_lost")),
        (job("FAILED", error_type=OWN_END, driver_exit_code=1), ("lost", "supervisor_lost")),
        (job("FAILED", error_type=OWN_END, driver_exit_code=1, ago=5), ("stopping", None)),
        (
            job("FAILED", error_type=OWN_END, driver_exit_code=NO_STORAGE, ago=5),
            ("failed", "staging_failed"),
        ),
        (job("FAILED", error_type="RUNTIME_ENV_SETUP_FAILURE", ago=5), ("failed", "platform")),
        *(
            (job("FAILED", error_type=kind, ago=5), ("failed", "platform"))
            for kind in (
                "JOB_SUPERVISOR_ACTOR_DIED",
                "JOB_SUPERVISOR_ACTOR_UNSCHEDULABLE",
                "JOB_SUPERVISOR_ACTOR_START_TIMEOUT",
                "JOB_SUPERVISOR_ACTOR_START_FAILURE",
                "JOB_SUPERVISOR_ACTOR_UNKNOWN_FAILURE",
                "JOB_ENTRYPOINT_COMMAND_START_ERROR",
            )
        ),
        (job("FAILED", error_type=None, ago=5), ("failed", "platform")),  # 2.49 names no type
        (job("SUCCEEDED", driver_exit_code=0, ago=5), ("stopping", None)),
        (job("SUCCEEDED", driver_exit_code=0), ("lost", "supervisor_lost")),
    ],
)
def test_without_an_outcome_the_job_decides(
    of: Mapping[str, Any] | None, expected: tuple[str, str | None]
) -> None:
    assert judged(of) == expected


@pytest.mark.parametrize(("seconds", "waits"), [(5.0, None), (40.0, "Ray to start its driver")])
def test_a_driver_that_ray_does_not_start_is_waited_for(seconds: float, waits: str | None) -> None:
    submitted = job("PENDING", start_time=int((NOW - seconds) * 1000))
    seen = judge(submitted, {"state": "starting"}, None, driver_alive=True, now=NOW)
    assert (seen["state"], seen.get("waiting_for")) == ("starting", waits)


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (f"{LAST_LINES}A line.\nsgpu: `/mnt/a` is not here\n", "`/mnt/a` is not here"),
        (NO_LINES, NO_LINES),
        (None, "see the log of its job"),
    ],
)
def test_a_driver_that_cannot_use_its_launch_folder_says_why(
    message: str | None, reason: str
) -> None:
    failed = job("FAILED", error_type=OWN_END, driver_exit_code=NO_STORAGE, message=message)

    seen = judge(failed, RUNNING, None, driver_alive=True, now=NOW)

    assert seen["first_cause"]["summary"] == (
        f"the driver could not start on the head node: {reason}"
    )


@pytest.mark.parametrize(
    "of",
    [
        None,
        job("FAILED", error_type="JOB_SUPERVISOR_ACTOR_DIED"),
        job("FAILED", error_type=OWN_END, driver_exit_code=NO_STORAGE),
        job("STOPPED"),
        job("SUCCEEDED"),
    ],
)
def test_an_outcome_of_the_agents_counts_more_than_a_job_that_has_ended(
    of: Mapping[str, Any] | None,
) -> None:
    assert judged(of, SUCCEEDED) == ("succeeded", None)


def test_agents_that_stopped_because_their_driver_was_killed_were_not_cancelled() -> None:
    cancelled = {"state": "cancelled", "exit_code": 130, "class": None}

    assert final_outcome(cancelled, RUNNING, NEVER) is None
    assert final_outcome(cancelled, {**RUNNING, "state": "stopping"}, NEVER) is cancelled


@pytest.mark.parametrize(
    ("failure", "restart", "retry", "counts"),
    [
        ("node_lost", 0, NEVER, True),
        ("node_lost", 0, {"max": 1, "on": ["infra"]}, False),
        ("node_lost", 1, {"max": 1, "on": ["infra"]}, True),
        ("node_lost", 0, {"max": 1, "on": ["error"]}, True),
        ("exception", 0, {"max": 1, "on": ["infra"]}, True),
        ("exception", 0, {"max": 1, "on": ["infra", "error"]}, False),
        ("exception", 1, {"max": 1, "on": ["infra", "error"]}, True),
        ("timeout", 0, {"max": 1, "on": ["infra", "error"]}, True),
    ],
)
def test_an_outcome_that_a_retry_may_follow_is_no_end(
    failure: str, restart: int, retry: Mapping[str, Any], counts: bool
) -> None:
    failed = {"state": "failed", "exit_code": 1, "class": failure, "restart": restart}
    assert (final_outcome(failed, RUNNING, retry) is failed) is counts


def test_who_had_a_job_stopped_is_said() -> None:
    def summary(stop: str | None) -> str:
        seen = judge(job("STOPPED"), RUNNING, None, driver_alive=True, now=NOW, stop=stop)
        return str(seen["first_cause"]["summary"])

    assert summary(None) == "its job was stopped at the cluster"
    assert summary("it was cancelled") == "it was cancelled"


def test_a_job_that_runs_on_a_node_that_is_not_alive_is_lost() -> None:
    assert judged(job("RUNNING"), driver_alive=False) == ("lost", "node_lost")
    assert judged(job("RUNNING"), SUCCEEDED, driver_alive=False) == ("succeeded", None)


def test_what_was_known_last_stays_in_a_lost_attempt() -> None:
    ranks = [{"rank": 0, "node_rank": 0, "state": "running", "exit_code": None, "signal": None}]
    seen = judge(None, {**RUNNING, "ranks": ranks}, None, driver_alive=True, now=NOW)

    assert seen["started_at"] == RUNNING["started_at"]
    assert [rank["state"] for rank in seen["ranks"]] == ["lost"]
