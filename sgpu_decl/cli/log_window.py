"""The newest lines of a log: `--tail` and `--since`."""

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import replace

from sgpu_decl.model.rank_output import LogLines

__all__ = ["newest_lines", "written_since"]


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
    """Of the lines that are there at the beginning, the last `tail`; then all that follow. How
    a run stands ends the beginning: every log was read once by then. `None` says nothing: it comes
    between two logs that are far away."""
    kept: deque[LogLines] = deque()
    count, reading = 0, iter(items)
    for item in reading if tail is not None else ():
        if item is None:
            continue
        if not isinstance(item, LogLines):
            break
        kept.append(item)
        count += len(item.lines)
        while kept and count - len(kept[0].lines) >= (tail or 0):
            count -= len(kept.popleft().lines)
    if kept and tail is not None and count > tail:
        first = kept.popleft()
        kept.appendleft(replace(first, text="\n".join(first.lines[count - tail :])))
    yield from kept
    yield from (item for item in reading if isinstance(item, LogLines))
