"""What a node's output says: which rank a line is of, and which lines were seen before."""

import re
from collections import Counter
from dataclasses import dataclass

from sgpu_decl.model.attempt import AttemptRef
from sgpu_decl.model.rank_output import LogLines

__all__ = ["Deduplicator", "NodeLine", "line_of"]

_LARGEST_NUMBER = 10**15  # of a line; as a time, 1970
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
    one moment are as many as they are: they are counted."""

    def __init__(self) -> None:
        self._counts: Counter[NodeLine] = Counter()
        self.last_ns = 0

    def new(self, records: list[NodeLine], since_ns: int) -> list[NodeLine]:
        """Those of an answer that were not there before; all of it is at or after `since_ns`."""
        counts: Counter[NodeLine] = Counter()
        fresh = []
        for record in records:
            counts[record] += 1
            if counts[record] > self._counts[record]:
                fresh.append(record)
        for record in fresh:
            self._counts[record] += 1
            self.last_ns = max(self.last_ns, record.time_ns)
        self._forget(since_ns)
        return fresh

    def _forget(self, before_ns: int) -> None:
        """What is older than the last question asked for is not asked for again."""
        for record in [count for count in self._counts if count.time_ns < before_ns]:
            del self._counts[record]
