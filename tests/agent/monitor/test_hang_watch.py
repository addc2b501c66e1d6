"""How long ranks may wait until that is said."""

from typing import Any

from sgpu_decl.agent.monitor.hang_watch import HangWatch
from sgpu_decl.agent.monitor.rank_answers import checked_answer


def answer(marks: str) -> Any:
    return checked_answer({"stack": [["main", "/a.py", 3]], "marks": [marks], "groups": None})


def watch(hang_after: float | None) -> HangWatch:
    spec = {"token": "t", "hang_after": hang_after}
    return HangWatch(spec, node=0, restart=0, living={0: 1}, send=lambda _: None)


def test_auto_is_five_times_the_longest_gap_between_collectives() -> None:
    one = watch(None)
    (rank,) = one._ranks.values()
    assert one._after == 30.0
    for marks, moment in (("a", 100.0), ("a", 105.0), ("b", 112.0), ("c", 113.0)):
        one._gap = max(one._gap, rank.take(answer(marks), moment))
    assert (one._gap, one._after) == (12.0, 60.0)
    assert watch(7.0)._after == 7.0
