"""All who ask whether ranks may start again after a failure say the same."""

from itertools import product
from typing import Any

import pytest

from sgpu_decl.agent.attempt.outcome import Outcome, restarts
from sgpu_decl.agent.node.platform_attempts import why_settled
from sgpu_decl.agent.retry_rule import (
    CANCELLED,
    NOT_COVERED,
    SUCCEEDED,
    USED_UP,
    USELESS,
    pause_before,
    why_ended,
)
from sgpu_decl.backends.databricks.launching.submit import retries_of
from sgpu_decl.backends.ray.cluster.job_verdict import final_outcome, is_final
from sgpu_decl.backends.remote.watching.remote_status import failed_for_good
from sgpu_decl.config.run import RunConfig
from sgpu_decl.model.attempt import FailureClass, blame_of

TABLE = """
exception           error  here  elsewhere
exit_code           error  here  elsewhere
signal_self         error  here  elsewhere
oom                 error  here  elsewhere
timeout             error  -     -
hung                error  -     -
launch_failed_user  error  here  elsewhere
killed              infra  here  elsewhere
launch_failed       infra  here  elsewhere
node_lost           infra  here  elsewhere
supervisor_lost     infra  -     elsewhere
staging_failed      infra  -     elsewhere
capacity            infra  -     elsewhere
preempted           infra  -     elsewhere
platform            infra  here  elsewhere
upstream_failed     infra  -     -
"""
ROWS = [line.split() for line in TABLE.split("\n") if line]
ON = [(), ("infra",), ("error",), ("infra", "error")]
MOST, STARTS = [0, 1, 3], [1, 2, 3, 4]


class Brought:
    """Node 0 brought back all of one attempt."""

    def __init__(self, outcome: dict[str, Any]) -> None:
        self._outcome = outcome

    def newest(self) -> int:
        return 0

    def outcome(self, attempt: int) -> dict[str, Any]:
        return self._outcome

    def report(self, attempt: int, node: int) -> dict[str, Any]:
        return {"v": 1}


def expected(
    row: list[str], on: tuple[str, ...], most: int, starts: int, *, other_nodes: bool
) -> str | None:
    _, blame, here, elsewhere = row
    if (elsewhere if other_nodes else here) == "-":
        return USELESS
    if blame not in on or (other_nodes and "infra" not in on):
        return NOT_COVERED
    return None if starts <= most else USED_UP


def test_the_table_has_every_failure() -> None:
    assert {row[0]: row[1] for row in ROWS} == {
        failure: str(blame_of(failure)) for failure in FailureClass
    }


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0])
def test_each_failure_is_judged_alike(row: list[str]) -> None:
    for state, on, most, starts in product(["failed", "lost"], ON, MOST, STARTS):
        retry = {"on": on, "max": most}
        outcome = {"state": state, "class": row[0], "restart": starts - 1, "exit_code": 1}
        why = expected(row, on, most, starts, other_nodes=True)
        here = expected(row, on, most, starts, other_nodes=False)
        config = RunConfig.model_validate(
            {"name": "a", "gpus": 1, "type": "CPU", "command": ["a"], "retry": retry}
        )

        assert why_ended(outcome, retry, other_nodes=True) == why
        assert why_ended(outcome, retry, other_nodes=False) == here
        # Five ask: the supervisor, the node program, Ray's driver and whoever watches that, the
        # status of a run elsewhere, and what is submitted to Databricks.
        assert restarts(Outcome(state, 1, {"class": row[0]}), retry, starts - 1) is (here is None)
        assert why_settled(outcome, retry, starts) == why
        assert is_final(outcome, retry, starts) is (why is not None)
        assert (final_outcome(outcome, {"state": "running"}, retry) is None) is (why is None)
        assert failed_for_good(Brought(outcome), retry) is (why is not None)  # type: ignore[arg-type]
        assert why is not None or starts <= retries_of(config)


def test_starts_that_the_outcome_does_not_know_of_count() -> None:
    retry = {"on": ("infra",), "max": 2}
    outcome = {"state": "failed", "class": "node_lost", "restart": 0, "exit_code": 1}
    assert (why_settled(outcome, retry, 2), is_final(outcome, retry, 2)) == (None, False)
    assert (why_settled(outcome, retry, 3), is_final(outcome, retry, 3)) == (USED_UP, True)


def test_what_did_not_fail_does_not_start_again() -> None:
    retry = {"on": ("infra", "error"), "max": 9}
    for state, why in (("succeeded", SUCCEEDED), ("cancelled", CANCELLED)):
        outcome = {"state": state, "class": None, "restart": 0, "exit_code": 0}
        for other_nodes in (False, True):
            assert why_ended(outcome, retry, other_nodes=other_nodes) == why
        assert not restarts(Outcome(state, 0), retry, 0)
        assert is_final(outcome, retry)
        assert not failed_for_good(Brought(outcome), retry)  # type: ignore[arg-type]
    # A platform that starts a cancelled command again had stopped it itself.
    assert why_settled(outcome, retry, 1) is None
    assert why_settled(None, retry, 9) is None


def test_a_failure_that_this_version_does_not_know_starts_nothing() -> None:
    outcome = {"state": "failed", "class": "cosmic_ray", "restart": 0, "exit_code": 1}
    assert why_ended(outcome, {"on": ("infra", "error"), "max": 9}, other_nodes=True) == USELESS


def test_a_backoff_doubles_up_to_a_minute_or_to_itself() -> None:
    def pauses(backoff: float) -> list[float]:
        return [pause_before(restart, {"backoff": backoff}) for restart in range(1, 9)]

    assert pauses(1.0) == [1, 2, 4, 8, 16, 32, 60, 60]
    assert pauses(0.0) == [0] * 8
    assert pauses(90.0) == [90] * 8
    assert pause_before(10_000, {"backoff": 0.5}) == 60
