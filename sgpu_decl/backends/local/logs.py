"""The log files of ranks, read as lines in the order of time: whole, or as they grow.

Python ranks note beside each log when its bytes were written, so their lines are merged. Other
logs have no times: they come rank by rank, and while following in the order in which they arrive.
"""

import heapq
import os
import struct
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from sgpu_decl.backends.base import LogLine
from sgpu_decl.model.attempt import AttemptRef

__all__ = ["read_lines"]

STREAMS = ("stdout", "stderr")
CHUNK = 1 << 16
LONGEST_LINE = 1 << 20
_ENTRY = struct.Struct("<QQ")


class _Index:
    """When the bytes of a log were written: (monotonic ns, offset) of writes 10 ms apart."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0
        self._entries: deque[tuple[int, int]] = deque()
        self._moment = 0
        self.fresh = True  # there may be entries that were not read yet

    def moment(self, offset: int) -> int:
        """When the byte at `offset` was written; offsets are asked for in order. 0 is unknown."""
        while True:
            if not self._entries and self.fresh:
                self._read()
            if not self._entries or self._entries[0][1] > offset:
                return self._moment
            self._moment = max(self._moment, self._entries.popleft()[0])

    def _read(self) -> None:
        data = _read(self._path, self._offset, CHUNK)
        data = data[: len(data) // _ENTRY.size * _ENTRY.size]
        self._offset += len(data)
        self._entries.extend(entry for entry in _ENTRY.iter_unpack(data) if entry[0])
        self.fresh = len(data) == CHUNK


class _Tail:
    """One growing file. `rest` is a line that has not ended yet, up to `offset`."""

    def __init__(self, path: Path, rank: int, stream: str) -> None:
        self.path = path
        self.rank = rank
        self.stream = stream
        self._offset = 0
        self._rest = b""
        self._index = _Index(path.with_suffix(".idx"))

    def size(self) -> int:
        self._index.fresh = True
        try:
            return self.path.stat().st_size
        except FileNotFoundError:
            return self._offset

    def lines(self, end: int) -> Iterator[tuple[int, "_Tail", bytes]]:
        """Yield (moment, self, line) up to the offset `end`."""
        while self._offset < end:
            start = _data_from(self.path, self._offset)
            if start > self._offset:
                yield self._skip(start)
            chunk = _read(self.path, self._offset, min(CHUNK, end - self._offset))
            if not chunk:
                return
            begin = self._offset - len(self._rest)
            self._offset += len(chunk)
            *whole, self._rest = (self._rest + chunk).split(b"\n")
            if len(self._rest) > LONGEST_LINE:
                whole, self._rest = [*whole, self._rest], b""
            for line in whole:
                yield self._index.moment(begin), self, line
                begin += len(line) + 1

    def last(self) -> Iterator[tuple[int, "_Tail", bytes]]:
        """Yield the line that never ended, if there is one."""
        rest, self._rest = self._rest, b""
        if rest:
            yield self._index.moment(self._offset - len(rest)), self, rest

    def _skip(self, start: int) -> tuple[int, "_Tail", bytes]:
        """Go on after a part that the size bound of the log took, at the next whole line."""
        partial = _read(self.path, start, CHUNK).partition(b"\n")
        skipped = start - self._offset + len(self._rest) + len(partial[0]) + len(partial[1])
        self._offset, self._rest = start + len(partial[0]) + len(partial[1]), b""
        note = b"sgpu: %d bytes of older output were dropped: the log had grown too long" % skipped
        return self._index.moment(self._offset), self, note


def read_lines(
    ref: AttemptRef,
    folder: Path,
    *,
    ranks: Sequence[int] | None,
    restart: int | None,
    follow: bool,
    hide: Callable[[str], str],
    ended: Callable[[], bool],
) -> Iterator[LogLine | None]:
    """Yield the lines of an attempt's ranks.

    Args:
        folder: the attempt's folder.
        ranks: which ranks, or `None` for all.
        restart: which restart, or `None` for all.
        follow: go on until `ended()` and everything was read; a quiet moment yields `None`,
            at which the caller sleeps.
        hide: takes secret values out of a line.
    """
    tails: dict[Path, _Tail] = {}
    while True:
        over = ended() if follow else True
        quiet = True
        _discover(folder, ranks, restart, tails)
        # All sizes first: what was written before this moment is merged now, the rest later.
        known = [(tail, tail.size()) for tail in tails.values()]
        streams = [tail.lines(size) for tail, size in known]
        for _, tail, line in heapq.merge(*streams, key=_moment):
            quiet = False
            yield _line(ref, tail, line, hide)
        if quiet:
            if over:
                break
            yield None
    for _, tail, line in heapq.merge(*(tail.last() for tail in tails.values()), key=_moment):
        yield _line(ref, tail, line, hide)


def _moment(entry: tuple[int, _Tail, bytes]) -> int:
    return entry[0]


def _line(ref: AttemptRef, tail: _Tail, raw: bytes, hide: Callable[[str], str]) -> LogLine:
    text = hide(raw.removesuffix(b"\r").decode("utf-8", "replace"))
    return LogLine(ref=ref, rank=tail.rank, stream=tail.stream, text=text)


def _read(path: Path, offset: int, size: int) -> bytes:
    try:
        with path.open("rb", buffering=0) as file:
            file.seek(offset)
            return file.read(size)
    except FileNotFoundError:
        return b""


def _data_from(path: Path, offset: int) -> int:
    """Return where the next bytes lie that the log's bound left; `offset` where none was taken."""
    try:
        with path.open("rb", buffering=0) as file:
            return os.lseek(file.fileno(), offset, os.SEEK_DATA)
    except OSError:  # gone, or its end
        return offset


def _discover(
    folder: Path, ranks: Sequence[int] | None, restart: int | None, tails: dict[Path, _Tail]
) -> None:
    for rank in _numbered(folder / "ranks") if ranks is None else ranks:
        for number in _numbered(folder / "ranks" / str(rank)):
            if restart not in (None, number):
                continue
            for stream in STREAMS:
                path = folder / "ranks" / str(rank) / str(number) / f"{stream}.log"
                if path not in tails and path.exists():
                    tails[path] = _Tail(path, rank, stream)


def _numbered(folder: Path) -> list[int]:
    try:
        return sorted(int(entry.name) for entry in folder.iterdir() if entry.name.isdigit())
    except OSError:
        return []
