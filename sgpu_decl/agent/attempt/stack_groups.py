"""Ranks in groups with equal stacks: in a hang, a rank that differs is the one to look at.

Two stacks are equal if their threads are at the same lines, in whatever order the threads are
listed. What differs between processes that do the same does not count: numbers of threads and
processes, and whether a thread runs.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    Thread = tuple[str, ...]

_BOOTSTRAP = "_bootstrap"  # the outermost function of every thread of `threading`


class StackGroup:
    """`ranks` have the stacks `text`, which is that of the first one. `differs`: more than half of
    all ranks have other stacks, the same ones. `at` is then the outermost frame in which it differs
    from them; None where it only lacks a thread."""

    __slots__ = ("at", "differs", "ranks", "text")

    def __init__(self, ranks: Sequence[int], text: str, *, differs: bool, at: str | None) -> None:
        self.ranks = tuple(ranks)
        self.text = text
        self.differs = differs
        self.at = at

    @property
    def title(self) -> str:
        """`ranks 0-6 have the same stacks`, `rank 7 differs from the others: File …`."""
        if self.differs:
            verb = "differs" if len(self.ranks) == 1 else "differ"
            at = f": {self.at}" if self.at else ""
            return f"{rank_list(self.ranks)} {verb} from the others{at}"
        if len(self.ranks) == 1:
            return rank_list(self.ranks)
        return f"{rank_list(self.ranks)} have the same stacks"


def stack_groups(stacks: Mapping[int, str]) -> list[StackGroup]:
    """Return the groups of ranks with equal stacks, the largest first, and those that differ from
    more than half of all ranks last."""
    grouped: dict[tuple[Thread, ...], list[int]] = {}
    for rank in sorted(stacks):
        grouped.setdefault(_threads(stacks[rank]), []).append(rank)
    ordered = sorted(grouped.items(), key=lambda item: (-len(item[1]), item[1]))
    usual = next((key for key, ranks in ordered if 2 * len(ranks) > len(stacks)), None)
    return [
        StackGroup(
            ranks, stacks[ranks[0]], differs=usual not in (None, key),
            at=None if usual in (None, key) else _difference(key, usual),
        )
        for key, ranks in ordered
    ]  # fmt: skip


def rank_list(ranks: Iterable[int]) -> str:
    """Return `rank 3`, `ranks 0-6, 8`."""
    runs: list[list[int]] = []
    for rank in sorted(ranks):
        if runs and rank == runs[-1][1] + 1:
            runs[-1][1] = rank
        else:
            runs.append([rank, rank])
    words = ", ".join(str(low) if low == high else f"{low}-{high}" for low, high in runs)
    return f"rank{'' if words.isdigit() else 's'} {words}"


def _threads(text: str) -> tuple[Thread, ...]:
    """The frames of each thread, as faulthandler and py-spy write them: indented, below a line
    about the thread."""
    threads: list[list[str]] = [[]]
    for line in text.splitlines():
        if line[:1].isspace():
            threads[-1].append(line.strip())
        elif threads[-1]:
            threads.append([])
    return tuple(sorted(tuple(frames) for frames in threads if frames))


def _difference(threads: Sequence[Thread], usual: Sequence[Thread]) -> str | None:
    """The outermost frame that differs: of the main thread if that does, else of the thread that is
    alike for longest."""
    others = list(usual)
    own = []
    for thread in threads:
        if thread in others:
            others.remove(thread)
        else:
            own.append(thread)
    if not own:
        return None
    alike = {thread: max((_alike(thread, one) for one in usual), default=0) for thread in own}
    first = max(own, key=lambda thread: (_BOOTSTRAP not in thread[-1], alike[thread]))
    return first[max(0, len(first) - 1 - alike[first])]


def _alike(one: Thread, other: Thread) -> int:
    """How many frames two threads share, from the outermost one."""
    count = 0
    for mine, its in zip(reversed(one), reversed(other)):  # noqa: B905  one may be longer
        if mine != its:
            break
        count += 1
    return count
