"""Which rank the others wait for, of what was seen of each."""

from typing import Any

import pytest

from sgpu_decl.agent.monitor.collective_waits import RankLook, collective_wait, span
from sgpu_decl.agent.monitor.rank_answers import Collective, RankAnswer, checked_answer

TORCH = "/venv/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py"
ALL = ("0", (0, 1, 2))
IN_CALL = (
    ("all_reduce", TORCH, 3245),
    ("step", "/code/train.py", 212),
    ("<module>", "/code/train.py", 300),
)
LATER = (IN_CALL[0], ("step", "/code/train.py", 213))
LOADING = (
    ("wait", "/usr/lib/python3.11/threading.py", 327),
    ("DataLoader.__next__", "/venv/lib/python3.11/site-packages/torch/utils/data/x.py", 7),
    ("batches", "/code/data.py", 88),
)


def call(number: int, name: str = "all_reduce", **more: Any) -> Collective:
    given = {"sizes": "[[4]]", "types": "Float", "elements": 4, **more}
    return Collective(number, name, **given)


def look(rank: int, *calls: Collective, stack: Any = IN_CALL, **more: Any) -> RankLook:
    given = {"stood": 130.0, "idle": 130.0, **more}
    groups = given.pop("groups", {ALL: calls})
    return RankLook(rank, answer=RankAnswer(stack, "", groups), **given)


def waiting(rank: int, number: int = 1841, **more: Any) -> RankLook:
    return look(rank, call(number - 1), call(number, pending=True), **more)


def seen(*looks: RankLook, after: float = 60.0) -> Any:
    return collective_wait({one.rank: one for one in looks}, after, code_dir="/code")


def test_a_rank_that_has_not_entered_is_named() -> None:
    wait = seen(waiting(0), waiting(1), look(2, call(1840), stack=LOADING, node=1))
    assert (wait.kind, wait.alarm, wait.ranks, wait.waiting) == ("missing", True, (2,), (0, 1))
    assert wait.summary == (
        "rank 2 (node 1) has not entered all_reduce #1841 (train.py:212); 2 ranks wait there for "
        "2 m 10 s; rank 2 is in DataLoader.__next__ (data.py:88)"
    )


def test_a_rank_that_works_is_information() -> None:
    wait = seen(waiting(0), waiting(1), look(2, call(1840), stack=LOADING, idle=1.0))
    assert not wait.alarm
    assert wait.summary == ("2 ranks wait for rank 2, which is in DataLoader.__next__ (data.py:88)")


def test_nothing_is_said_before_the_time() -> None:
    assert seen(waiting(0, stood=59.0), waiting(1, stood=59.0), look(2, stack=LOADING)) is None
    assert seen(look(0, call(3)), look(1, call(3)), look(2, call(3)), after=1e9) is None


@pytest.mark.parametrize(
    ("odd", "kind", "said"),
    [
        (call(5, "barrier", pending=True, elements=0, types=""), "order", "called barrier #5"),
        (call(5, pending=True, sizes="[[8]]", elements=8), "shape", "with [[8]]"),
        (call(5, pending=True, types="Double"), "shape", "with Double"),
    ],
)
def test_collectives_that_do_not_match(odd: Collective, kind: str, said: str) -> None:
    right = call(5, pending=True)
    wait = seen(look(0, right), look(1, odd, idle=0.0), look(2, right))
    assert (wait.kind, wait.alarm, wait.ranks) == (kind, True, (1,))
    assert said in wait.summary


@pytest.mark.parametrize(
    ("name", "sizes"), [("scatter", "[]"), ("all_to_all", "[[9]]"), ("all_gather", "[[9]]")]
)
def test_sizes_may_differ_where_each_rank_gives_its_own(name: str, sizes: str) -> None:
    other = call(5, name, sizes=sizes, elements=9, pending=True)
    ranks = [look(rank, call(5, name, pending=True), idle=0.0) for rank in (0, 1)]
    wait = seen(*ranks, look(2, other, idle=0.0))
    assert (wait.kind, wait.alarm) == ("unfinished", False)


def test_the_same_elements_in_another_shape_match() -> None:
    ranks = [look(rank, call(5, pending=True), idle=0.0) for rank in (0, 1)]
    assert not seen(*ranks, look(2, call(5, sizes="[[2, 2]]", pending=True), idle=0.0)).alarm


def test_what_differed_and_ended_keeps_nobody_waiting() -> None:
    before, odd = call(4, "broadcast"), call(4, "broadcast", elements=9)
    wait = seen(
        look(0, before, call(5, pending=True)),
        look(1, odd, call(5, pending=True)),
        look(2, before, stack=LOADING, idle=0.0),
    )
    assert (wait.kind, wait.alarm, wait.ranks) == ("missing", False, (2,))


@pytest.mark.parametrize(("state", "kind", "idle"), [("T", "stopped", 0.0), ("", "ended", 100.0)])
def test_a_rank_that_cannot_go_on(state: str, kind: str, idle: float) -> None:
    wait = seen(waiting(0), waiting(1), look(2, call(1840), state=state, idle=idle))
    assert (wait.kind, wait.alarm, wait.ranks) == (kind, True, (2,))


def test_a_rank_that_has_just_ended_may_have_entered_the_collective_before() -> None:
    """What it answered last, and what the others did, is older than its end."""
    wait = seen(waiting(0), waiting(1), look(2, call(1840), state="", idle=0.0))
    assert (wait.kind, wait.alarm) == ("ended", False)
    assert wait.summary == "2 ranks wait for rank 2, which has ended"


def test_a_chain_ends_at_the_rank_that_does_not_wait() -> None:
    pair = ("1", (1, 2))
    wait = seen(
        waiting(0),
        look(1, groups={ALL: (call(1840),), pair: (call(7, pending=True),)}),
        look(2, groups={ALL: (call(1840),), pair: (call(6),)}, stack=LOADING),
    )
    assert wait.ranks == (2,)


def test_ranks_that_wait_for_each_other() -> None:
    one, other = ("1", (0, 1)), ("2", (0, 1))
    looks = [
        look(0, groups={one: (call(1, pending=True),), other: ()}),
        look(1, groups={one: (), other: (call(1, pending=True),)}, stack=LATER),
    ]
    wait = seen(*looks)
    assert (wait.kind, wait.alarm) == ("order", True)
    assert wait.summary.startswith("ranks have waited for each other for 2 m 10 s: rank 0 in ")


def test_one_rank_alone_waits_for_nobody() -> None:
    assert seen(look(0, stack=LOADING, groups=None)) is None
    assert seen() is None


@pytest.mark.parametrize(
    "value",
    [
        None, [], {}, {"stack": 1}, {"stack": [], "marks": "", "groups": 5},
        {"stack": [["a"]], "marks": "", "groups": None},
        {"stack": [["a", "b", "x"]], "marks": "", "groups": None},
        {"stack": [], "marks": "", "groups": [{"name": "0", "ranks": ["x"], "last": []}]},
        {"stack": [], "marks": "", "groups": [{"name": "0", "ranks": [], "last": [{}]}]},
        {"stack": [], "marks": "", "groups": [{"name": "0", "ranks": [float("inf")], "last": []}]},
    ],
)  # fmt: skip
def test_no_answer(value: object) -> None:
    assert checked_answer(value) is None


def test_an_answer_survives_the_way_to_another_node() -> None:
    answer = waiting(0).answer
    assert answer is not None
    again = checked_answer(answer.message())
    assert again is not None
    assert again.message() == answer.message()


def test_spans() -> None:
    assert [span(each) for each in (0.4, 59, 130, 3600, 7384)] == [
        "0 s", "59 s", "2 m 10 s", "1 h", "2 h 3 m",
    ]  # fmt: skip
