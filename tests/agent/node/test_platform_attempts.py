"""Attempts of the platform at one run: counted, told apart, and settled."""

from pathlib import Path
from typing import Any

from sgpu_decl.agent.node.node_report import REPORT, seal
from sgpu_decl.agent.node.platform_attempts import KEPT, PlatformAttempts, why_settled
from sgpu_decl.agent.retry_rule import NOT_COVERED

INFRA: dict[str, Any] = {"max": 2, "on": ["infra"]}


def outcome(state: str, failure: str | None = None, code: int = 1) -> dict[str, Any]:
    return {"state": state, "class": failure, "exit_code": code, "restart": 0}


def bring(folder: str, **what: object) -> None:
    path = Path(folder)
    path.mkdir(parents=True, exist_ok=True)
    (path / REPORT).write_bytes(seal(outcome={"state": "failed", **what}, files={}))


def test_attempts_are_counted_with_the_starts_of_ranks_in_each(tmp_path: Path) -> None:
    attempts = PlatformAttempts(str(tmp_path / "back"))
    assert attempts.look() == (None, 0)
    bring(attempts.claim(), restart=2)
    assert attempts.look() == ({"state": "failed", "restart": 2}, 3)
    attempts.claim()  # and it dies
    assert attempts.look() == (None, 4)
    bring(attempts.claim(), restart=4)
    assert attempts.look() == ({"state": "failed", "restart": 4}, 5)


def test_other_nodes_find_the_attempt_that_node_0_began(tmp_path: Path) -> None:
    attempts = PlatformAttempts(str(tmp_path / "back"))
    for number in range(12):
        assert attempts.claim() == str(tmp_path / "back" / str(number) / "node_0")
        if number == 3:
            continue  # node 2 never came up
        found = attempts.join(2)
        assert found == str(tmp_path / "back" / str(number) / "node_2")
        bring(found)


def test_a_node_that_does_not_see_the_new_attempt_yet_passes_over_its_own_old_one(
    tmp_path: Path,
) -> None:
    attempts = PlatformAttempts(str(tmp_path / "back"))
    assert attempts.join(1) == str(tmp_path / "back" / "0" / "node_1")
    bring(attempts.join(1))
    assert attempts.join(1) == str(tmp_path / "back" / "1" / "node_1")


def test_launches_of_a_job_are_told_apart_by_how_often_the_platform_starts_one(
    tmp_path: Path,
) -> None:
    def attempts() -> PlatformAttempts:
        return PlatformAttempts(str(tmp_path), most=2)

    def ended(state: str, failure: str | None = None) -> None:
        bring(attempts().claim(), **outcome(state, failure))

    assert attempts().look() == (None, 0)
    ended("succeeded")
    assert attempts().look() == (None, 0), "the next launch"
    ended("failed", "exception")
    last, used = attempts().look()
    assert (why_settled(last, INFRA, used), used) == (NOT_COVERED, 1), (
        "the platform starts it once more"
    )
    attempts().repeat(last or {})
    assert attempts().look() == (None, 0), "it was started as often as it is"
    ended("failed", "node_lost")
    assert attempts().look()[1] == 1
    attempts().claim()  # and nothing came back
    assert attempts().look() == (None, 0)
    ended("cancelled")
    assert attempts().look() == (None, 0)


def test_old_attempts_of_a_job_go(tmp_path: Path) -> None:
    for _ in range(KEPT + 2):
        PlatformAttempts(str(tmp_path), most=1).claim()
    assert sorted(int(path.name) for path in tmp_path.iterdir()) == list(range(2, KEPT + 2))
