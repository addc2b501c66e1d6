"""The newest lines of a log: `--tail` and `--since`."""

from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Iterator
from dataclasses import replace

from sgpu_decl.model.attempt import AttemptRef
from sgpu_decl.model.rank_output import LogLines


def written_since(
    items: Iterable[object], since_ns: int | None, untimed: set[str]
) -> Iterator[object]:
    """Leave out lines that were written before `since_ns`. Lines without a time stay, and
    `untimed` gets the runs that wrote some."""
    for item in items:
        if since_ns is not None and isinstance(item, LogLines):
            if item.time_ns is None:
                untimed.add(str(item.ref))
            elif item.time_ns < since_ns:
                continue
        yield item


def newest_lines(items: Iterable[object], tail: int | None) -> Iterator[LogLines]:
    """Of the lines of each run that are there at the beginning, the last `tail`; then all that
    follow. How a run stands ends the beginning: every log was read once by then. `None` says
    nothing: it comes between two logs that are far away."""
    kept: defaultdict[AttemptRef, deque[LogLines]] = defaultdict(deque)
    counts, reading = Counter[AttemptRef](), iter(items)
    for item in reading if tail is not None else ():
        if item is None:
            continue
        if not isinstance(item, LogLines):
            break
        ref, newest = item.ref, kept[item.ref]
        newest.append(item)
        counts[ref] += len(item.lines)
        while newest and counts[ref] - len(newest[0].lines) >= (tail or 0):
            counts[ref] -= len(newest.popleft().lines)
    for ref, newest in kept.items():
        if newest and tail is not None and counts[ref] > tail:
            first = newest.popleft()
            text = "\n".join(first.lines[counts[ref] - tail :])
            newest.appendleft(replace(first, text=text))
        yield from newest
    yield from (item for item in reading if isinstance(item, LogLines))
