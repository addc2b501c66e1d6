"""Ranks with equal stacks are one group, and the one that differs is named with its line."""

import pytest

from sgpu_decl.agent.attempt.stack_groups import rank_list, stack_groups

BOOT = ('File "/lib/threading.py", line 1038 in _bootstrap_inner',
        'File "/lib/threading.py", line 995 in _bootstrap')  # fmt: skip
WORKER = ('File "/lib/queue.py", line 171 in get', 'File "train.py", line 80 in load', *BOOT)
REDUCE = ('File "dist.py", line 9 in all_reduce', 'File "train.py", line 5 in step',
          'File "train.py", line 30 in main')  # fmt: skip
LOADS = ('File "/lib/queue.py", line 171 in get', 'File "train.py", line 4 in step',
         'File "train.py", line 30 in main')  # fmt: skip
LOGS = ('File "log.py", line 2 in write', 'File "train.py", line 31 in main')


def by_faulthandler(number: int, *threads: tuple[str, ...]) -> str:
    """The last thread is the current one, as the main thread is; each has an address of its own."""
    parts = []
    for at, frames in enumerate(threads):
        who = "Current thread" if frames is threads[-1] else "Thread"
        lines = "".join(f"  {frame}\n" for frame in frames)
        parts.append(f"{who} 0x{number * 64 + at:016x} (most recent call first):\n{lines}")
    return "\n".join(parts)


def by_py_spy(number: int, *threads: tuple[str, ...]) -> str:
    said = [f"Process {number}: python train.py --rank {number}\nPython v3.11.7 (/bin/python3)\n"]
    for at, frames in enumerate(threads):
        lines = "".join(f"    {frame}\n" for frame in frames)
        state = "idle" if (number + at) % 2 else "active+gil"
        said.append(f'Thread {number + at} ({state}): "Thread-{number}"\n{lines}')
    return "\n".join(said)


@pytest.mark.parametrize("written", [by_faulthandler, by_py_spy])
@pytest.mark.parametrize(
    ("odd", "at"),
    [
        ((WORKER, LOADS), LOADS[1]),  # the outermost line that differs, not where it waits
        ((WORKER, LOGS), LOGS[1]),
        ((WORKER, REDUCE[1:]), REDUCE[1]),  # it computes where the others wait deeper
        ((WORKER[1:], LOADS), LOADS[1]),  # the main thread before others
        ((WORKER[1:], REDUCE), WORKER[1]),
        ((WORKER, WORKER, REDUCE), WORKER[0]),  # one thread more
        ((REDUCE,), None),  # one less
    ],
)
def test_the_one_that_differs_comes_last_with_its_line(
    written: type, odd: tuple[tuple[str, ...], ...], at: str | None
) -> None:
    stacks = {rank: written(rank, WORKER, REDUCE) for rank in range(8) if rank != 3}
    same, differs = stack_groups({**stacks, 3: written(3, *odd)})
    assert (same.ranks, same.differs, same.at) == ((0, 1, 2, 4, 5, 6, 7), False, None)
    assert same.title == "ranks 0-2, 4-7 have the same stacks"
    assert same.text == stacks[0]
    assert (differs.ranks, differs.differs, differs.at) == ((3,), True, at)
    assert differs.title.startswith("rank 3 differs from the others")


def test_the_order_of_threads_does_not_count() -> None:
    one, other = by_faulthandler(1, WORKER, LOGS, REDUCE), by_faulthandler(2, LOGS, WORKER, REDUCE)
    assert [group.ranks for group in stack_groups({0: one, 1: other})] == [(0, 1)]


def test_nobody_differs_where_no_stacks_are_those_of_most() -> None:
    reduce, load = by_faulthandler(1, REDUCE), by_faulthandler(2, LOADS)
    halves = stack_groups({0: load, 1: reduce, 2: reduce, 3: load})
    assert [(group.ranks, group.differs) for group in halves] == [((0, 3), False), ((1, 2), False)]
    assert [group.title for group in stack_groups({0: load, 1: reduce})] == ["rank 0", "rank 1"]
    assert stack_groups({}) == []


def test_ranks_are_listed_in_ranges() -> None:
    assert rank_list([7]) == "rank 7"
    assert rank_list([8, 0, 1, 2, 10]) == "ranks 0-2, 8, 10"
