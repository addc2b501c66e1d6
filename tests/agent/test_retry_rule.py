"""All who ask whether ranks may start again after a failure say the same."""

from itertools import product
from typing import Any

import pytest

from sgpu_decl.agent.node.platform_attempts import settled_code
from sgpu_decl.agent.retry_rule import is_final, pause_before, starts_again
from sgpu_decl.agent.verdict import BLAME
from sgpu_decl.backends.ray.cluster.job_verdict import settles
from sgpu_decl.backends.remote.remote_status import code_failed

USELESS = {"upstream_failed"}
"""Failures that no start helps, whatever `retry` says."""


class Brought:
    """Node 0 brought back all of one attempt, which failed."""

    def __init__(self, failure: str) -> None:
        self.failure = failure

    def newest(self) -> int:
        return 0

    def outcome(self, attempt: int) -> dict[str, Any]:
        return {"state": "failed", "class": self.failure}

    def done(self, attempt: int, node: int) -> dict[str, Any]:
        return {"v": 1}


@pytest.mark.parametrize("failure", BLAME)
def test_each_failure_is_judged_alike(failure: str) -> None:
    for on, most, starts in product(
        [(), ("infra",), ("error",), ("infra", "error")], [0, 1, 3], [1, 2, 4]
    ):
        retry = {"on": on, "max": most}
        outcome = {"state": "failed", "class": failure, "restart": starts - 1, "exit_code": 1}
        expected = BLAME[failure] in on and starts <= most and failure not in USELESS

        assert starts_again(failure, retry, starts, other_nodes=True) is expected
        here = starts_again(failure, retry, starts, other_nodes=False)
        assert here is (expected and failure != "staging_failed")
        assert (settled_code(outcome, retry, starts) is None) is expected
        # Agents start ranks again themselves that the user's code ended.
        of_ray = expected and BLAME[failure] == "infra"
        assert settles(outcome, retry, starts) is not of_ray
        assert is_final(failure) is (BLAME[failure] == "error" or failure in USELESS)
        assert code_failed(Brought(failure)) is is_final(failure)  # type: ignore[arg-type]


def test_a_backoff_doubles_up_to_a_minute_or_to_itself() -> None:
    def pauses(backoff: float) -> list[float]:
        return [pause_before(restart, {"backoff": backoff}) for restart in range(1, 9)]

    assert pauses(1.0) == [1, 2, 4, 8, 16, 32, 60, 60]
    assert pauses(0.0) == [0] * 8
    assert pauses(90.0) == [90] * 8
    assert pause_before(10_000, {"backoff": 0.5}) == 60
