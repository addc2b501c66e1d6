"""How an attempt stands, by its driver, its agents and Ray. Jobs are as Ray 2.60 and 2.49.1 answer
(`JobDetails` in `ray/dashboard/modules/job/pydantic_models.py`)."""

from collections.abc import Mapping
from typing import Any

import pytest

from sgpu_decl.backends.ray.cluster.exit_codes import NO_STORAGE
from sgpu_decl.backends.ray.cluster.job_verdict import judge

RUNNING = {"v": 1, "state": "running", "started_at": "2026-11-23T08:00:00.000Z"}
SUCCEEDED = {"state": "succeeded", "exit_code": 0, "class": None}
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
        (job("FAILED", error_type="JOB_SUPERVISOR_ACTOR_DIED", ago=5), ("failed", "platform")),
        (job("SUCCEEDED", driver_exit_code=0, ago=5), ("stopping", None)),
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
        f"the driver could not use the launch folder on the head node: {reason}"
    )


@pytest.mark.parametrize(
    "of", [None, job("FAILED", error_type="JOB_SUPERVISOR_ACTOR_DIED"), job("SUCCEEDED")]
)
def test_an_outcome_of_the_agents_counts_more_than_a_job_that_has_ended(
    of: Mapping[str, Any] | None,
) -> None:
    assert judged(of, SUCCEEDED) == ("succeeded", None)


def test_agents_that_stopped_because_their_driver_was_killed_were_not_cancelled() -> None:
    killed = job("FAILED", error_type=OWN_END, driver_exit_code=-9)
    cancelled = {"state": "cancelled", "exit_code": 130, "class": None}

    assert judged(killed, cancelled) == ("lost", "supervisor_lost")
    asked = judge(killed, {**RUNNING, "state": "stopping"}, cancelled, driver_alive=True, now=NOW)
    assert asked["state"] == "cancelled"


def test_a_job_that_runs_on_a_node_that_is_not_alive_is_lost() -> None:
    assert judged(job("RUNNING"), driver_alive=False) == ("lost", "node_lost")
    assert judged(job("RUNNING"), SUCCEEDED, driver_alive=False) == ("succeeded", None)


def test_what_was_known_last_stays_in_a_lost_attempt() -> None:
    ranks = [{"rank": 0, "node_rank": 0, "state": "running", "exit_code": None, "signal": None}]
    seen = judge(None, {**RUNNING, "ranks": ranks}, None, driver_alive=True, now=NOW)

    assert seen["started_at"] == RUNNING["started_at"]
    assert [rank["state"] for rank in seen["ranks"]] == ["lost"]
