"""How an attempt ends, from how its ranks did and why they were told to stop."""

import signal
from typing import Any

import pytest

from sgpu_decl.agent.attempt.outcome import Outcome, failed, judged
from sgpu_decl.agent.attempt.verdict import RankEnding, Verdict

MS = 1_000_000
SPEC = {"timeout": 60.0, "startup_timeout": 5.0, "progress_timeout": 9.0}
WELL = RankEnding(rank=0, ended_ns=9 * MS, exit_code=0)
TIDY = RankEnding(rank=0, ended_ns=9 * MS, exit_code=0, term_ns=5 * MS)
TOLD = RankEnding(rank=0, ended_ns=9 * MS, signal=signal.SIGTERM, term_ns=5 * MS)
BROKEN = RankEnding(rank=1, ended_ns=9 * MS, exit_code=7)
REFUSAL = failed("launch_failed_user", "cannot start `gone`", 1)
LOST = failed("node_lost", "node 1 was lost: it closed the connection")


def shown(outcome: Outcome) -> tuple[str, int, str | None]:
    return outcome.state, outcome.exit_code, outcome.cause["class"] if outcome.cause else None


@pytest.mark.parametrize(
    ("endings", "given", "expected"),
    [
        ([WELL], {}, ("succeeded", 0, None)),
        ([WELL, BROKEN], {}, ("failed", 7, "exit_code")),
        ([TOLD, BROKEN], {"stop": "failure"}, ("failed", 7, "exit_code")),
        ([TOLD], {"stop": "cancelled"}, ("cancelled", 130, None)),
        ([TIDY], {"stop": "cancelled"}, ("cancelled", 130, None)),
        ([WELL], {"stop": "cancelled"}, ("succeeded", 0, None)),  # it came too late
        ([], {"stop": "cancelled"}, ("cancelled", 130, None)),
        ([TOLD, BROKEN], {"stop": "cancelled"}, ("cancelled", 130, None)),
        ([TOLD], {"stop": "timeout"}, ("failed", 124, "timeout")),
        ([TOLD], {"stop": "startup"}, ("failed", 124, "timeout")),
        ([TOLD], {"stop": "hung"}, ("failed", 124, "hung")),
        ([TOLD], {"stop": "launch", "refusal": REFUSAL}, ("failed", 1, "launch_failed_user")),
        ([], {"stop": "launch", "refusal": REFUSAL}, ("failed", 1, "launch_failed_user")),
        ([TOLD], {"stop": "node", "lost": (LOST, 5 * MS)}, ("failed", 1, "node_lost")),
        ([TOLD, BROKEN], {"stop": "node", "lost": (LOST, 5 * MS)}, ("failed", 1, "node_lost")),
        ([TOLD, BROKEN], {"stop": "node", "lost": (LOST, 20 * MS)}, ("failed", 7, "exit_code")),
    ],
)
def test_an_attempt_ends_by_what_came_first(
    endings: list[RankEnding], given: dict[str, Any], expected: tuple[str, int, str | None]
) -> None:
    reasons = {"stop": None, "refusal": None, "lost": None, **given}
    assert shown(judged(Verdict(endings), endings, SPEC, **reasons)) == expected
