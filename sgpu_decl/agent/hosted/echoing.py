"""What ranks write, on the stdout of the node, where the platform keeps it for its users.

Ranks write to files of their own, as everywhere, and are never waited for: here they are read again
as they grow, so that a slow reader of stdout holds up nobody. Lines come out whole, each with whose
it is: `[rank 3] text`, `[rank 3 err] text`. The agent's own lines, `agent.log`, have no such mark.
"""

from __future__ import annotations

import errno
import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Echo", "say"]

_CHUNK = 1 << 16
_LONGEST_LINE = 1 << 20
_MARKS = {"stdout": "[rank {}] ", "stderr": "[rank {} err] "}


def say(text: str) -> None:
    """Write a line of the agent's own."""
    _write(f"sgpu: {text}\n".encode("utf-8", "replace"))


def _write(data: bytes) -> None:
    rest = memoryview(data)
    try:
        while rest:
            rest = rest[os.write(1, rest) :]
    except OSError as error:
        if error.errno not in (errno.EPIPE, errno.EIO, errno.ENOSPC, errno.EBADF):
            raise  # nobody reads it any more, or there is no room for it: the run goes on


class Echo:
    """Of the run in `folder`: its agent's log, and those of the ranks on this node. `hide` takes
    the values of secrets out of a text.

    Memory is bounded: for each log one chunk, and a line that has not ended yet, which is broken
    where it grows too long.
    """

    def __init__(self, folder: str, hide: Callable[[str], str]) -> None:
        self._ranks = os.path.join(folder, "ranks")
        self._hide = hide
        self._tails = {"agent": _Tail(os.path.join(folder, "agent.log"), b"")}
        self._restarts: dict[int, int] = {}

    def turn(self) -> bool:
        """Pass on a part of what was written since the last turn; whether there was any."""
        self._discover()
        busy = False
        for tail in self._tails.values():
            busy = self._advance(tail) or busy
        return busy

    def finish(self) -> None:
        """Pass on all the rest, when nobody writes any more; lines that never ended too."""
        self._discover()
        while self._tails:
            self._end(next(iter(self._tails)))

    def _discover(self) -> None:
        """Find the logs of ranks that were started; those of the restart before are whole then."""
        for rank in _numbers(self._ranks):
            for restart in _numbers(os.path.join(self._ranks, str(rank))):
                if restart <= self._restarts.get(rank, -1):
                    continue
                self._restarts[rank] = restart
                for stream, mark in _MARKS.items():
                    self._end(f"{rank} {stream}")
                    path = os.path.join(self._ranks, str(rank), str(restart), f"{stream}.log")
                    self._tails[f"{rank} {stream}"] = _Tail(path, mark.format(rank).encode())

    def _advance(self, tail: _Tail) -> bool:
        lines, more = tail.read()
        self._pass_on(tail, lines)
        return more

    def _end(self, name: str) -> None:
        tail = self._tails.pop(name, None)
        if tail is not None:
            while self._advance(tail):
                pass
            self._pass_on(tail, tail.last())
            tail.close()

    def _pass_on(self, tail: _Tail, lines: list[bytes]) -> None:
        if lines:
            text = b"\n".join(lines).decode("utf-8", "surrogateescape")
            whole = self._hide(text).encode("utf-8", "surrogateescape").split(b"\n")
            _write(b"".join(tail.mark + line + b"\n" for line in whole))


class _Tail:
    """One growing file, which may not be there yet."""

    def __init__(self, path: str, mark: bytes) -> None:
        self.mark = mark
        self._path = path
        self._file = -1
        self._offset = 0
        self._rest = b""

    def read(self) -> tuple[list[bytes], bool]:
        """The next whole lines, of a chunk at most; and whether there was anything to read."""
        if self._file < 0 and not self._open():
            return [], False
        skipped = self._skip()
        chunk = os.pread(self._file, _CHUNK, self._offset)
        self._offset += len(chunk)
        *whole, self._rest = (self._rest + chunk).split(b"\n")
        if len(self._rest) > _LONGEST_LINE:
            whole.append(self._rest)
            self._rest = b""
        return skipped + whole, bool(chunk)

    def last(self) -> list[bytes]:
        """The line that never ended, if there is one."""
        rest, self._rest = self._rest, b""
        return [rest] if rest else []

    def close(self) -> None:
        if self._file >= 0:
            os.close(self._file)

    def _open(self) -> bool:
        try:
            self._file = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return False
        return True

    def _skip(self) -> list[bytes]:
        """Go on behind a part that the bound of the log took before it was read."""
        try:
            start = os.lseek(self._file, self._offset, os.SEEK_DATA)
        except OSError:  # the end of the file
            return []
        if start == self._offset:
            return []
        lost = start - self._offset
        broken, self._rest, self._offset = self._rest, b"", start
        note = b"sgpu: %d bytes of output were dropped: the log had grown too long" % lost
        return [broken, note] if broken else [note]


def _numbers(folder: str) -> list[int]:
    try:
        return sorted(int(name) for name in os.listdir(folder) if name.isdigit())
    except OSError:
        return []
