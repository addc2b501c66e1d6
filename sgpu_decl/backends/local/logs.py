"""The log files of ranks, read as lines: whole, or as they grow."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from sgpu_decl.backends.base import LogLine
from sgpu_decl.model.attempt import AttemptRef

__all__ = ["read_lines"]

STREAMS = ("stdout", "stderr")
CHUNK = 1 << 16


@dataclass(slots=True)
class _Tail:
    """One growing file; `rest` is a line that has not ended yet."""

    path: Path
    rank: int
    stream: str
    offset: int = 0
    rest: bytes = field(default=b"")

    def lines(self) -> list[bytes]:
        try:
            with self.path.open("rb") as file:
                file.seek(self.offset)
                chunk = file.read(CHUNK)
        except FileNotFoundError:
            return []
        self.offset += len(chunk)
        *whole, self.rest = (self.rest + chunk).split(b"\n")
        return whole

    def last(self) -> list[bytes]:
        rest, self.rest = self.rest, b""
        return [rest] if rest else []


def read_lines(
    ref: AttemptRef,
    folder: Path,
    *,
    ranks: Sequence[int] | None,
    follow: bool,
    ended: Callable[[], bool],
) -> Iterator[LogLine | None]:
    """Yield the lines of an attempt's ranks, restarts in order.

    Args:
        folder: the attempt's folder.
        ranks: which ranks, or `None` for all.
        follow: go on until `ended()` and everything was read; a quiet moment yields `None`,
            at which the caller sleeps.
    """
    tails: dict[Path, _Tail] = {}
    while True:
        over = ended() if follow else True
        quiet = True
        _discover(folder, ranks, tails)
        for tail in tails.values():
            for line in tail.lines():
                quiet = False
                yield _line(ref, tail, line)
        if quiet:
            if over:
                break
            yield None
    for tail in tails.values():
        for line in tail.last():
            yield _line(ref, tail, line)


def _line(ref: AttemptRef, tail: _Tail, raw: bytes) -> LogLine:
    text = raw.removesuffix(b"\r").decode("utf-8", "replace")
    return LogLine(ref=ref, rank=tail.rank, stream=tail.stream, text=text)


def _discover(folder: Path, ranks: Sequence[int] | None, tails: dict[Path, _Tail]) -> None:
    for rank in _numbered(folder / "ranks") if ranks is None else ranks:
        for restart in _numbered(folder / "ranks" / str(rank)):
            for stream in STREAMS:
                path = folder / "ranks" / str(rank) / str(restart) / f"{stream}.log"
                if path not in tails and path.exists():
                    tails[path] = _Tail(path, rank, stream)


def _numbered(folder: Path) -> list[int]:
    try:
        return sorted(int(entry.name) for entry in folder.iterdir() if entry.name.isdigit())
    except OSError:
        return []
