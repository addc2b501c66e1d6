"""What a node's output says: which rank a line is of, and which lines were seen before."""

import re
from array import array
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from sgpu_decl.model.attempt import AttemptRef
from sgpu_decl.model.rank_output import LogLines

__all__ = ["Deduplicator", "NodeLine", "line_of"]

_LARGEST_NUMBER = 10**15  # of a line; as a time, 1970
_SPAN = 10_000_000_000  # ns whose records are compared at a time
_RANK = re.compile(r"\[rank (\d+)( err)?\] ?(.*)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class NodeLine:
    """One line of a node, as the platform keeps it; `time_ns` is when it came, or the number of the
    line where the platform keeps no times."""

    time_ns: int
    node: int
    body: str


def line_of(ref: AttemptRef, record: NodeLine) -> LogLines:
    """The line as its rank wrote it; without a rank where it is the agent's or the platform's."""
    body = record.body.rstrip("\r\n")
    time_ns = record.time_ns if record.time_ns > _LARGEST_NUMBER else None
    match = _RANK.match(body)
    if match is None:
        return LogLines(ref=ref, rank=None, stream="stderr", text=body, time_ns=time_ns)
    stream = "stderr" if match[2] else "stdout"
    return LogLines(ref=ref, rank=int(match[1]), stream=stream, text=match[3], time_ns=time_ns)


class Deduplicator:
    """Tells new records from those that an overlapping question brings once more. Equal lines of
    one moment are as many as they are: they are counted. It keeps eight bytes of each record."""

    def __init__(self) -> None:
        self._known: defaultdict[int, array[int]] = defaultdict(lambda: array("q"))
        self.last_ns = 0

    def new(self, records: Iterable[NodeLine]) -> Iterator[NodeLine]:
        """Those records of one answer that were in none before."""
        awaited: dict[int, Counter[int]] = {}
        for record in records:
            span, key = record.time_ns // _SPAN, hash(record)
            known = self._known[span]
            if span not in awaited:
                awaited = {at: counts for at, counts in awaited.items() if at >= span - 1}
                awaited[span] = Counter(known)
            if awaited[span][key]:
                awaited[span][key] -= 1
                continue
            known.append(key)
            self.last_ns = max(self.last_ns, record.time_ns)
            yield record
