"""What the platform says of an ending, in our words."""

from typing import Any

import pytest

from sgpu_decl.backends.databricks.watching.termination import state_of, termination_of
from sgpu_decl.model.attempt import AttemptState, FailureClass

# Evidence: A4: the words of a workspace, whose code is INTERNAL_ERROR.
QUOTA = (
    "System error occurred during execution of task Gen AI Compute Task: Workspace has exceeded "
    "its GPU quota for GPU_8xH100. Please reach out to your databricks contact to increase the "
    "quota."
)


def run(
    result: str,
    code: str = "",
    kind: str = "CLIENT_ERROR",
    *,
    ran: int = 5,
    by_user: bool = True,
    said: str = "so it was",
) -> dict[str, Any]:
    details = {"termination_details": {"code": code, "type": kind}}
    task = {
        "attempt_number": 1, "execution_duration": ran, "status": details,
        "state": {"state_message": said},
    }  # fmt: skip
    first = {"attempt_number": 0, "status": {"termination_details": {"code": "DRIVER_ERROR"}}}
    state = {"life_cycle_state": "TERMINATED", "result_state": result,
             "user_cancelled_or_timedout": by_user}  # fmt: skip
    return {"state": state, "tasks": [task, first]}


@pytest.mark.parametrize(
    ("shown", "state", "failure"),
    [
        (run("SUCCESS", "SUCCESS"), "succeeded", None),
        (run("CANCELED", "USER_CANCELED"), "cancelled", None),
        (run("CANCELED", "CANCELED", by_user=False), "failed", "preempted"),
        (run("TIMEDOUT"), "failed", "timeout"),
        (run("TIMEDOUT", ran=0), "failed", "capacity"),
        (run("FAILED", "RUN_EXECUTION_ERROR"), "failed", "exit_code"),
        (run("FAILED", "RUN_EXECUTION_ERROR", ran=0), "failed", "launch_failed_user"),
        (run("FAILED", "CLOUD_FAILURE", "CLOUD_FAILURE"), "failed", "node_lost"),
        (run("FAILED", "CLOUD_FAILURE", "CLOUD_FAILURE", ran=0), "failed", "capacity"),
        (run("FAILED", "INTERNAL_ERROR", "INTERNAL_ERROR"), "failed", "platform"),
        (
            run("FAILED", "INTERNAL_ERROR", "INTERNAL_ERROR", ran=0, said=QUOTA),
            "failed",
            "capacity",
        ),
        (run("FAILED", "BUDGET_POLICY_LIMIT_EXCEEDED"), "failed", "launch_failed_user"),
        (run("FAILED", "SOMETHING_NEW", "INTERNAL_ERROR"), "failed", "platform"),
        (run("MAXIMUM_CONCURRENT_RUNS_REACHED"), "failed", "capacity"),
    ],
)
def test_how_a_run_ended(shown: dict[str, Any], state: str, failure: str | None) -> None:
    ending = termination_of(shown)

    assert ending.state is AttemptState(state)
    assert ending.failure is (FailureClass(failure) if failure else None)


@pytest.mark.parametrize(
    ("life", "task", "state"),
    [
        ("PENDING", "PENDING", "queued"),
        ("RUNNING", "PENDING", "queued"),
        ("RUNNING", "RUNNING", "running"),
        ("RUNNING", "INTERNAL_ERROR", "queued"),  # and the platform is about to try again
        ("TERMINATING", "RUNNING", "stopping"),
        ("SOMETHING_NEW", "RUNNING", "running"),
    ],
)
def test_a_run_that_goes_on(life: str, task: str, state: str) -> None:
    shown = {
        "state": {"life_cycle_state": life},
        "tasks": [{"attempt_number": 0, "state": {"life_cycle_state": task}}],
    }

    assert state_of(shown) is AttemptState(state)


def test_one_that_has_ended_has_no_state_of_going_on() -> None:
    assert state_of(run("FAILED")) is None
