"""What the ranks of an attempt on this machine do now: from what its monitor saw last, and from the
ends of their logs."""

import heapq
import os
import re
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeVar

from sgpu_decl.agent.attempt.attempt_files import read_json
from sgpu_decl.agent.attempt.monitor_files import MONITOR, REPORTED
from sgpu_decl.agent.system.safe_files import regular_opener
from sgpu_decl.backends.activity_reader import ActivityReader
from sgpu_decl.backends.host.folder_logs import STREAMS, index_entries
from sgpu_decl.backends.monitor_activity import measured, whole
from sgpu_decl.model.attempt_view import AttemptView
from sgpu_decl.model.rank_activity import RankActivity

_LINE = 4 << 10  # bytes at the end of a log in which its last line is looked for
_TAIL = 64 << 10  # bytes of a log that are shown
_INDEX = 64 << 10

_Read = TypeVar("_Read")


class FolderActivity(ActivityReader):
    """Reads again only what has changed. `hide` takes secret values out of a text."""

    def __init__(self, folder: Path, hide: Callable[[str], str]) -> None:
        self._folder = folder
        self._hide = hide
        self._lines: dict[str, tuple[tuple[int, int], str | None]] = {}
        self._steps: dict[str, tuple[tuple[int, int], int | None]] = {}

    def look(self, view: AttemptView) -> tuple[datetime | None, Sequence[RankActivity]]:
        seen = (read_json(os.fspath(self._folder), MONITOR) or {}) if view.state.active else {}
        ranks = [self._written(rank.rank, view.restart) for rank in view.ranks]
        return measured(seen, view, ranks)

    def newest_lines(self, view: AttemptView, rank: int) -> Sequence[str]:
        paths = [self._rank_file(rank, view.restart, f"{stream}.log") for stream in STREAMS]
        sizes = [_stamp(path) for path in paths]
        # Without times, the stream that was written last comes last.
        ordered = [path for _, path in sorted(zip(sizes, paths, strict=True), key=_written_at)]
        merged = heapq.merge(*map(_tail, ordered), key=lambda line: line[0])
        return self._hide("\n".join(text for _, text in merged)).split("\n")

    def _rank_file(self, rank: int, restart: int, name: str) -> str:
        return f"{self._folder}/ranks/{rank}/{restart}/{name}"

    def _written(self, rank: int, restart: int) -> RankActivity:
        newest: tuple[int, int] | None = None
        line = None
        for stream in STREAMS:
            path = self._rank_file(rank, restart, f"{stream}.log")
            stamp = _stamp(path)
            if stamp[0] and (newest is None or stamp[1] >= newest[1]):
                newest, line = stamp, path
        reported = self._rank_file(rank, restart, REPORTED)
        return RankActivity(
            rank=rank,
            step=_known(self._steps, reported, _stamp(reported), _step_in),
            last_line=_known(self._lines, line, newest, self._last_line)
            if line is not None and newest is not None
            else None,
            written_at=datetime.fromtimestamp(newest[1] / 1e9, UTC) if newest else None,
        )

    def _last_line(self, path: str) -> str | None:
        _, data = _end(path, _LINE)
        pieces = [piece for piece in re.split(rb"[\r\n]+", data) if piece.strip()]
        return self._hide(pieces[-1].decode("utf-8", "replace")) if pieces else None


def _known(
    cache: dict[str, tuple[tuple[int, int], _Read]],
    path: str,
    stamp: tuple[int, int],
    read: Callable[[str], _Read],
) -> _Read:
    known = cache.get(path)
    if known is None or known[0] != stamp:
        known = cache[path] = (stamp, read(path))
    return known[1]


def _stamp(path: str) -> tuple[int, int]:
    """The size of a file, and when it was written in ns; 0 for a file that is not there."""
    try:
        status = os.stat(path)
    except OSError:
        return 0, 0
    return status.st_size, status.st_mtime_ns


def _written_at(item: tuple[tuple[int, int], str]) -> int:
    return item[0][1]


def _end(path: str, most: int) -> tuple[int, bytes]:
    """The end of a log, from the first line or the first carriage return on, and its offset: half a
    line may hold half a secret, which nothing would hide."""
    try:
        with open(path, "rb", buffering=0, opener=regular_opener) as file:
            begin = max(0, os.fstat(file.fileno()).st_size - most)
            file.seek(begin)
            data = file.read(most)
    except OSError:
        return 0, b""
    if begin:
        cut = re.search(rb"[\r\n]", data)
        skipped = len(data) if cut is None else cut.end()
        begin, data = begin + skipped, data[skipped:]
    return begin, data


def _tail(path: str) -> Iterator[tuple[int, str]]:
    """The newest lines of a log, each with the moment of its first byte; 0 if that is unknown."""
    begin, data = _end(path, _TAIL)
    entries = index_entries(path, _INDEX) if data else []
    offsets = [offset for _, offset in entries]
    moment = 0
    for line in data.split(b"\n"):
        at = bisect_right(offsets, begin)
        moment = max(moment, entries[at - 1][0] if at else 0)
        begin += len(line) + 1
        if line:
            yield moment, line.decode("utf-8", "replace")


def _step_in(path: str) -> int | None:
    folder, name = os.path.split(path)
    return whole((read_json(folder, name, limit=_TAIL) or {}).get("step"))
