"""The logs of one attempt: text in chunks of 4 MB a node, as the platform keeps them, and beside
them an index of all lines of all nodes in the order in which they came."""

import os
from bisect import bisect_left
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from struct import Struct
from typing import Self

from sgpu_decl.testing.workspace.clock import now_ns

__all__ = ["Log", "Page", "StoredLine", "chunk_name", "read_page"]

_CHUNK = 4_000_000
_LONGEST = 1 << 20  # bytes of a line that is cut, so that no line ever waits for its end for long
_ENTRY = Struct("<QIIII")  # time in ns, node, chunk, offset, length
_INDEX = "lines.index"


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredLine:
    """One line; `number` counts the lines of its attempt."""

    number: int
    time_ns: int
    node: int
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """Some lines, and where to go on; None where there are no more."""

    records: tuple[StoredLine, ...]
    next: int | None


def chunk_name(node: int, number: int) -> str:
    """The chunk's path below the logs of its attempt."""
    return f"node_{node}/logs-{number}.chunk.txt"


class Log:
    """Takes what nodes write. `index` is the attempt's own folder, `chunks` where its text goes.
    Lines longer than `longest` bytes are cut."""

    def __init__(self, index: Path, chunks: Path, nodes: int, *, longest: int = _LONGEST) -> None:
        self._last = 0
        with ExitStack() as stack:
            self._index = stack.enter_context((index / _INDEX).open("ab", buffering=0))
            self._nodes = [
                stack.enter_context(_NodeLog(chunks, node, longest)) for node in range(nodes)
            ]
            self._files = stack.pop_all()

    def add(self, node: int, data: bytes) -> int:
        """Take bytes of a node's output; return how many lines of it are complete by now."""
        return self._write(node, data, ended=False)

    def end(self, node: int) -> None:
        """The node writes no more."""
        self._write(node, b"", ended=True)

    def close(self) -> None:
        """Close all files."""
        self._files.close()

    def _write(self, node: int, data: bytes, *, ended: bool) -> int:
        log = self._nodes[node]
        places = log.write(data, ended=ended)
        # Each line has a time of its own, and later lines later ones: whoever follows tells them
        # apart by it, and a clock that is set back breaks no order.
        first = max(self._last + 1, now_ns())
        self._last = max(self._last, first + len(places) - 1)
        entries = (_ENTRY.pack(first + n, node, *place) for n, place in enumerate(places))
        self._index.write(b"".join(entries))
        return log.lines


class _NodeLog:
    def __init__(self, folder: Path, node: int, longest: int) -> None:
        self._folder = folder
        self._longest = longest
        self._node = node
        self._held = b""
        self._number = 0
        self._size = 0
        self.lines = 0
        (folder / chunk_name(node, 0)).parent.mkdir(parents=True, exist_ok=True)
        self._file = (folder / chunk_name(node, 0)).open("wb", buffering=0)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def write(self, data: bytes, *, ended: bool) -> list[tuple[int, int, int]]:
        """Write the lines that are complete; (chunk, offset, length without line end) of each."""
        lines = [part + b"\n" for part in (self._held + data).split(b"\n")]
        lines[-1] = lines[-1][:-1]
        self._held = b""
        if not ended and len(lines[-1]) <= self._longest:
            self._held = lines.pop()
        places: list[tuple[int, int, int]] = []
        batch: list[bytes] = []
        for line in (piece for whole in lines for piece in self._pieces(whole)):
            if self._size and self._size + len(line) > _CHUNK:
                self._file.write(b"".join(batch))
                batch = []
                self._turn()
            places.append((self._number, self._size, len(line.rstrip(b"\r\n"))))
            batch.append(line)
            self._size += len(line)
        self._file.write(b"".join(batch))
        self.lines += len(places)
        return places

    def _pieces(self, line: bytes) -> Iterator[bytes]:
        """Parts of a line that are not too long; of one that fits, itself."""
        longest = self._longest
        while len(line.rstrip(b"\r\n")) > longest:
            yield line[:longest]
            line = line[longest:]
        if line:
            yield line

    def _turn(self) -> None:
        self._file.close()
        self._number += 1
        self._size = 0
        self._file = (self._folder / chunk_name(self._node, self._number)).open("wb", buffering=0)


def read_page(
    index: Path,
    chunks: Path,
    *,
    node: int | None = None,
    since_ns: int = 0,
    until_ns: int | None = None,
    ascending: bool = True,
    start: int | None = None,
    size: int = 1000,
) -> Page:
    """Lines of an attempt from one time to another, of one node or of all, oldest or newest first.

    `start` is the `next` of the page before. A page that was the last one then may have a successor
    later, which a new look with the same `start` finds.
    """
    try:
        entries = (index / _INDEX).read_bytes()
    except FileNotFoundError:
        return Page(records=(), next=None)
    total = len(entries) // _ENTRY.size
    times = _Times(entries, total)
    first = bisect_left(times, since_ns)
    last = total if until_ns is None else bisect_left(times, until_ns)
    if start is not None:
        first, last = (max(first, start), last) if ascending else (first, min(last, start))
    order = range(first, last) if ascending else range(last - 1, first - 1, -1)
    found: list[StoredLine] = []
    with _Chunks(chunks) as texts:
        for position in order:
            time_ns, of_node, chunk, offset, length = _ENTRY.unpack_from(
                entries, position * _ENTRY.size
            )
            if node is not None and of_node != node:
                continue
            if len(found) == size:
                return Page(records=tuple(found), next=position + (0 if ascending else 1))
            text = texts.text(of_node, chunk, offset, length)
            found.append(StoredLine(number=position, time_ns=time_ns, node=of_node, text=text))
    return Page(records=tuple(found), next=None)


class _Times:
    """The times of all lines, as the sequence that bisect asks for."""

    def __init__(self, entries: bytes, total: int) -> None:
        self._entries = entries
        self._total = total

    def __len__(self) -> int:
        return self._total

    def __getitem__(self, position: int) -> int:
        return int(_ENTRY.unpack_from(self._entries, position * _ENTRY.size)[0])


class _Chunks:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._open: dict[tuple[int, int], int] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for descriptor in self._open.values():
            os.close(descriptor)

    def text(self, node: int, chunk: int, offset: int, length: int) -> str:
        descriptor = self._open.get((node, chunk))
        if descriptor is None:
            descriptor = os.open(self._folder / chunk_name(node, chunk), os.O_RDONLY)
            self._open[node, chunk] = descriptor
        return os.pread(descriptor, length, offset).decode(errors="replace")
