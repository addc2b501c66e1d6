"""The part of a run that is one attempt, and why it waits or did not start."""

from typing import Any

import pytest

from sgpu_decl.backends.databricks.watching.run_part import RunPart, run_part
from sgpu_decl.backends.databricks.watching.termination import state_of, termination_of
from sgpu_decl.backends.remote.watching.remote_status import RemoteStatus
from sgpu_decl.model.address import Address
from sgpu_decl.model.attempt import AttemptRef, AttemptState, FailureClass
from sgpu_decl.model.attempt_view import AttemptView

OWN = RunPart(run_id=7, task="2-eval", retries=1, after={"1-train": "train#8"})


class Shown:
    """What a workspace shows of its runs."""

    def __init__(self, *tasks: dict[str, Any], result: str | None = None) -> None:
        state = {"life_cycle_state": "TERMINATED" if result else "RUNNING"}
        self._run = {
            "state": state | ({"result_state": result} if result else {}),
            "run_page_url": "https://here/run/7",
            "end_time": 99 if result else 0,
            "tasks": list(tasks),
        }

    def run(self, run_id: int, *, afresh: bool = False) -> dict[str, Any] | None:
        return self._run if run_id == 7 else None


def task(key: str, life: str, result: str | None = None, number: int = 0) -> dict[str, Any]:
    state = {"life_cycle_state": life} | ({"result_state": result} if result else {})
    return {
        "task_key": key, "attempt_number": number, "state": state, "end_time": 5 if result else 0,
        "run_id": 100 * (1 + number) + len(key), "execution_duration": 1 if result else 0,
    }  # fmt: skip


def look(shown: Any, part: RunPart = OWN) -> Any:
    return part.look(shown)


def test_a_run_of_one_task_is_the_attempt() -> None:
    shown = Shown(task("train", "RUNNING"))
    whole = run_part({"run_id": 7}, 0)
    assert look(shown, whole) == shown.run(7)
    assert whole.log_id({"run_id": 5}) == 7
    assert whole.cancelled_id(shown) == 7  # type: ignore[arg-type]


def test_another_task_of_the_run_does_not_count() -> None:
    ended = task("1-train", "TERMINATED", "SUCCESS")
    part = look(Shown(ended, task("2-eval", "RUNNING")))
    assert state_of(part) is AttemptState.RUNNING
    assert [one["task_key"] for one in part["tasks"]] == ["2-eval"]
    assert part["run_page_url"] == "https://here/run/7"


def test_a_task_that_has_ended_has_while_the_run_goes_on() -> None:
    part = look(Shown(task("1-train", "RUNNING"), task("2-eval", "TERMINATED", "CANCELED")))
    assert state_of(part) is None
    assert termination_of(part).state is AttemptState.CANCELLED
    assert part["end_time"] == 5


@pytest.mark.parametrize(
    ("tasks", "result", "state"),
    [
        ([task("2-eval", "TERMINATED", "FAILED")], None, AttemptState.QUEUED),
        ([task("2-eval", "INTERNAL_ERROR", "FAILED")], None, AttemptState.QUEUED),
        ([task("2-eval", "TERMINATED", "TIMEDOUT")], None, None),
        ([task("2-eval", "TERMINATED", "FAILED")], "FAILED", None),
        (
            [task("2-eval", "TERMINATED", "FAILED"), task("2-eval", "RUNNING", number=1)],
            None,
            AttemptState.RUNNING,
        ),
        (
            [task("2-eval", "TERMINATED", "FAILED"),
             task("2-eval", "TERMINATED", "FAILED", number=1)],
            None,
            None,
        ),
        ([], None, AttemptState.QUEUED),
    ],
)  # fmt: skip
def test_a_failure_is_none_while_the_platform_may_start_the_task_again(
    tasks: list[dict[str, Any]], result: str | None, state: AttemptState | None
) -> None:
    assert state_of(look(Shown(*tasks, result=result))) is state


def test_a_task_without_an_end_of_its_own_ended_with_the_run() -> None:
    part = look(Shown(task("2-eval", "BLOCKED"), result="CANCELED"))
    assert state_of(part) is None
    assert termination_of(part).state is AttemptState.CANCELLED


def test_a_task_is_cancelled_by_its_newest_attempt() -> None:
    tasks = [task("2-eval", "TERMINATED", "FAILED"), task("2-eval", "RUNNING", number=1)]
    shown: Any = Shown(task("1-train", "TERMINATED", "SUCCESS"), *tasks)
    assert OWN.cancelled_id(shown) == tasks[1]["run_id"]
    assert OWN.log_id(tasks[0]) == tasks[0]["run_id"]
    assert OWN.cancelled_id(Shown()) is None  # type: ignore[arg-type]


def explained(state: AttemptState, failure: FailureClass | None, *tasks: Any) -> AttemptView:
    ref = AttemptRef(Address.run("eval"), 1)
    view = AttemptView(
        ref=ref, backend="databricks", state=state, failure=failure, waiting_for="gpus"
    )
    shown: Any = Shown(*tasks)
    return OWN.explained(RemoteStatus(view=view), shown).view


@pytest.mark.parametrize(
    ("life", "result", "waiting_for"),
    [("RUNNING", None, "train#8"), ("TERMINATED", "SUCCESS", "gpus")],
)
def test_what_is_waited_for_is_named(life: str, result: str | None, waiting_for: str) -> None:
    view = explained(AttemptState.QUEUED, None, task("1-train", life, result))
    assert view.waiting_for == waiting_for


@pytest.mark.parametrize(
    ("result", "words"),
    [
        ("FAILED", "train#8 failed, and this run comes after it"),
        ("TIMEDOUT", "train#8 failed, and this run comes after it"),
        ("CANCELED", "train#8 was cancelled, and this run comes after it"),
        ("UPSTREAM_CANCELED", "train#8 failed, and this run comes after it"),
    ],
)
def test_what_did_not_succeed_is_named(result: str, words: str) -> None:
    part = look(Shown(task("2-eval", "SKIPPED", "UPSTREAM_FAILED")))
    ending = termination_of(part)
    assert ending.failure is FailureClass.UPSTREAM_FAILED

    view = explained(ending.state, ending.failure, task("1-train", "TERMINATED", result))

    assert view.first_cause is not None
    assert view.first_cause.summary == words
