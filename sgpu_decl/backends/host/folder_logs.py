"""The log files of ranks, read in the order of time: whole, or as they grow.

Lines that a rank wrote within one entry of its time index stay together as one text: what is done
for each text is then done for thousands of lines at once.

Python ranks note beside each log when its bytes were written, so their lines are merged. Other
logs have no times: they come rank by rank, and while following in the order in which they arrive.
"""

import heapq
import os
import struct
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from sgpu_decl.agent.attempt.attempt_files import numbers_in
from sgpu_decl.agent.attempt.growing_log import GrowingLog
from sgpu_decl.agent.system.safe_files import regular_opener
from sgpu_decl.backends.base import LogReader
from sgpu_decl.model.attempt import AttemptRef
from sgpu_decl.model.rank_output import LogLines

STREAMS = ("stdout", "stderr")
CHUNK = 1 << 18
_DROPPED = b"sgpu: %d bytes of older output were dropped: the log had grown too long"
_ENTRY = struct.Struct("<QQ")


class _Index:
    """When the bytes of a log were written: (monotonic ns, offset) of writes 10 ms apart."""

    def __init__(self, path: Path, later_ns: int) -> None:
        self._path = path
        self._later_ns = later_ns
        self._offset = 0
        self._entries: deque[tuple[int, int]] = deque()
        self._moment = 0
        self.fresh = True  # there may be entries that were not read yet

    def moment(self, offset: int) -> tuple[int, int | None]:
        """When the byte at `offset` was written, and the offset from which on bytes were written
        later, None for none yet. Offsets are asked for in order. The moment 0 is unknown."""
        while True:
            if not self._entries and self.fresh:
                self._read()
            if not self._entries:
                return self._moment, None
            if self._entries[0][1] > offset:
                return self._moment, self._entries[0][1]
            self._moment = max(self._moment, self._entries.popleft()[0])

    def _read(self) -> None:
        try:
            with open(self._path, "rb", buffering=0, opener=regular_opener) as file:
                file.seek(self._offset)
                data = file.read(CHUNK)
        except FileNotFoundError:
            data = b""
        data = data[: len(data) // _ENTRY.size * _ENTRY.size]
        self._offset += len(data)
        self._entries.extend(
            (moment + self._later_ns, at) for moment, at in _ENTRY.iter_unpack(data) if moment
        )
        self.fresh = len(data) == CHUNK


def index_entries(log: str | Path, most: int) -> list[tuple[int, int]]:
    """The newest entries of the index of a log: (monotonic ns, offset) in their order, from its
    last `most` bytes."""
    try:
        with open(Path(log).with_suffix(".idx"), "rb", buffering=0, opener=regular_opener) as file:
            size = os.fstat(file.fileno()).st_size // _ENTRY.size * _ENTRY.size
            file.seek(max(0, size - most // _ENTRY.size * _ENTRY.size))
            data = file.read(most)
    except OSError:
        return []
    whole = data[: len(data) // _ENTRY.size * _ENTRY.size]
    return [entry for entry in _ENTRY.iter_unpack(whole) if entry[0]]


class _Tail:
    """The log of a rank, and when its lines were written."""

    def __init__(self, path: Path, rank: int, stream: str, later_ns: int) -> None:
        self.path = path
        self.rank = rank
        self.stream = stream
        self._log = GrowingLog(path)
        self._index = _Index(path.with_suffix(".idx"), later_ns)

    def size(self) -> int:
        self._index.fresh = True
        try:
            return self.path.stat().st_size
        except FileNotFoundError:
            return self._log.offset

    def texts(self, end: int) -> Iterator[tuple[int, "_Tail", bytes]]:
        """Yield (moment, self, whole lines) up to the offset `end`."""
        while self._log.offset < end:
            part = self._log.read(end)
            if part.dropped:
                yield self._index.moment(part.begin)[0], self, _DROPPED % part.dropped
            if not part.size:
                return
            if part.lines is not None:
                yield from self._by_moment(part.lines, part.begin)

    def _by_moment(self, whole: bytes, begin: int) -> Iterator[tuple[int, "_Tail", bytes]]:
        """Cut lines, the first of which begins at the offset `begin`, where a later entry begins:
        a line belongs to the moment of its first byte."""
        at = 0
        while at <= len(whole):
            moment, later = self._index.moment(begin + at)
            cut = len(whole) if later is None else whole.find(b"\n", later - begin - 1)
            if cut < 0:
                cut = len(whole)
            yield moment, self, whole[at:cut]
            at = cut + 1

    def last(self) -> Iterator[tuple[int, "_Tail", bytes]]:
        """Yield the line that never ended, if there is one."""
        part = self._log.last()
        if part.lines is not None:
            yield self._index.moment(part.begin)[0], self, part.lines

    def dropped(self) -> bytes:
        """The line that says what the log lacks, since the disk was full, if it lacks something."""
        try:
            count = self.path.with_suffix(".dropped").stat().st_size
        except OSError:
            return b""
        return b"sgpu: %d bytes of output were dropped: the disk was full" % count if count else b""


class FolderLog(LogReader):
    """The log of the attempt in a folder.

    Args:
        ranks: which ranks, or `None` for all.
        restart: which restart, or `None` for all.
        hide: takes secret values out of a text.
        epoch_ns: when the monotonic clock of the attempt was 0, `None` if it is that of another
            boot or machine.
        later_ns: takes a rank; returns how many nanoseconds after that moment the clock of the
            rank's host was 0.
        ended: whether the attempt writes nothing more.
    """

    def __init__(
        self,
        ref: AttemptRef,
        folder: Path,
        *,
        ranks: Sequence[int] | None,
        restart: int | None,
        hide: Callable[[str], str],
        epoch_ns: int | None,
        later_ns: Callable[[int], int],
        ended: Callable[[], bool],
    ) -> None:
        self._ref = ref
        self._folder = folder
        self._ranks = ranks
        self._restart = restart
        self._hide = hide
        self._epoch_ns = epoch_ns
        self._later_ns = later_ns
        self._ended = ended
        self._tails: dict[Path, _Tail] = {}

    def read(self) -> tuple[Iterable[LogLines], bool]:
        over = self._ended()  # before the logs are looked at: all that was written is there then
        self._discover()
        # All sizes first: what was written before this moment is merged now, the rest later.
        sizes = [(tail, tail.size()) for tail in self._tails.values()]
        return self._lines(sizes, over=over), over

    def _lines(self, sizes: Sequence[tuple[_Tail, int]], *, over: bool) -> Iterator[LogLines]:
        for entry in heapq.merge(*(item.texts(size) for item, size in sizes), key=_moment):
            yield self._shown(*entry)
        if not over:
            return
        for entry in heapq.merge(*(item.last() for item, _ in sizes), key=_moment):
            yield self._shown(*entry)
        for tail, _ in sizes:
            if note := tail.dropped():
                yield self._shown(0, tail, note)

    def _discover(self) -> None:
        above = self._folder / "ranks"
        for rank in numbers_in(above) if self._ranks is None else self._ranks:
            for number in numbers_in(above / str(rank)):
                if self._restart not in (None, number):
                    continue
                for stream in STREAMS:
                    path = above / str(rank) / str(number) / f"{stream}.log"
                    if path not in self._tails and path.exists():
                        self._tails[path] = _Tail(path, rank, stream, self._later_ns(rank))

    def _shown(self, moment: int, tail: _Tail, raw: bytes) -> LogLines:
        if b"\r" in raw:
            raw = raw.removesuffix(b"\r").replace(b"\r\n", b"\n")
        known = moment and self._epoch_ns is not None
        return LogLines(
            ref=self._ref, rank=tail.rank, stream=tail.stream,
            text=self._hide(raw.decode("utf-8", "replace")),
            time_ns=moment + (self._epoch_ns or 0) if known else None,
        )  # fmt: skip


def _moment(entry: tuple[int, _Tail, bytes]) -> int:
    return entry[0]
