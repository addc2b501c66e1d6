"""Which ranks are marked since they clearly differ from the others, and which are not."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sgpu_decl.model.rank_activity import RankActivity
from sgpu_decl.runs.stragglers import LOOKS, stragglers

NOW = datetime(2026, 1, 31, tzinfo=UTC)


def marks(
    *,
    cpu: Sequence[int | None] | None = None,
    gpu: Sequence[int | None] | None = None,
    silent: Sequence[float | None] | None = None,
    looks: int = LOOKS,
    running: Sequence[int] | None = None,
) -> dict[int, str]:
    """The marks, where all looks see the same."""
    count = len(cpu or gpu or silent or ())
    ages = silent or [None] * count
    look = [
        RankActivity(
            rank=rank,
            cpu=cpu[rank] if cpu else None,
            gpu=gpu[rank] if gpu else None,
            written_at=None if (age := ages[rank]) is None else NOW - timedelta(seconds=age),
        )
        for rank in range(count)
    ]
    return stragglers([look] * looks, range(count) if running is None else running, NOW)


def test_the_rank_whose_gpu_waits_is_marked() -> None:
    assert marks(gpu=[97, 96, 12, 98, 95]) == {2: "GPU 12 %, others 96 %"}


def test_so_is_the_one_that_computes_while_others_wait() -> None:
    assert marks(cpu=[3, 100, 5, 4]) == {1: "CPU 100 %, others 4 %"}
    assert marks(gpu=[0, 0, 0, 90], cpu=[100, 100, 100, 100]) == {3: "GPU 90 %, others 0 %"}


def test_one_that_falls_silent_is_marked() -> None:
    assert marks(silent=[2, 3, 100, 1], looks=1) == {2: "silent for 1 m 40 s, others for 3 s"}


@pytest.mark.parametrize(
    "cpu",
    [
        [100, 60, 130, 80, 100],  # ranks differ by some
        [100, 0, 100],  # too few to say who differs
        [100, 0, 100, 0, 100, 0],  # they do two different things
        [10, 20, 80, 50, 90],  # each is different
        [0, 0, 0, 40],  # a little more than nothing
        [400, 400, 400, 300],  # many cores each
        [100, 100, None, 0, 100],  # nobody knows of all
    ],
)
def test_ranks_that_do_different_things_are_not(cpu: list[int | None]) -> None:
    assert marks(cpu=cpu) == {}


@pytest.mark.parametrize(
    "silent",
    [
        [2, 3, 50, 1],  # not for long
        [90, 80, 200, 100],  # the others are silent, too
        [2, 3, 100, None],  # one never writes
        [1, None, None, None],  # as in most programs
    ],
)
def test_silence_alone_says_nothing(silent: list[float | None]) -> None:
    assert marks(silent=silent) == {}


def test_a_difference_has_to_last() -> None:
    alike = [RankActivity(rank=rank, cpu=100) for rank in range(8)]
    odd = [RankActivity(rank=rank, cpu=100 if rank else 0) for rank in range(8)]
    every = range(8)
    assert stragglers([odd] * (LOOKS - 1), every, NOW) == {}
    assert stragglers([alike] + [odd] * (LOOKS - 1), every, NOW) == {}
    assert stragglers([alike] + [odd] * LOOKS, every, NOW).keys() == {0}
    assert stragglers([odd] * LOOKS + [alike], every, NOW) == {}


def test_a_rank_that_has_ended_is_compared_with_nobody() -> None:
    assert marks(cpu=[100, 100, 100, 100, None], running=range(4)) == {}
    assert marks(cpu=[100, 100, 100, 100, 0], running=range(4)) == {}
    assert marks(cpu=[100, 100, 0], running=range(3)) == {}


@given(st.lists(st.integers(0, 6400), min_size=4, max_size=12))
def test_only_the_least_and_the_greatest_may_differ(cpu: list[int]) -> None:
    assert {cpu[rank] for rank in marks(cpu=cpu)} <= {min(cpu), max(cpu)}


@given(st.lists(st.integers(70, 130), min_size=1, max_size=64))
def test_ranks_that_are_alike_have_no_mark(cpu: list[int]) -> None:
    assert marks(cpu=cpu) == {}
