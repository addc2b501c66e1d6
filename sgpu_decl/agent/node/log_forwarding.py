"""Copies the output of ranks to the stdout of the node, which the platform keeps for its users.

Ranks write to files of their own, as everywhere, and these are read as they grow. So a slow reader
of stdout delays no rank. Lines come out whole, and each begins with its rank: `[rank 3] text`,
`[rank 3 err] text`, or the marks of the platform. Lines of `agent.log` have no mark.
"""

from __future__ import annotations

import errno
import os

from sgpu_decl.agent.attempt.attempt_files import numbers_in
from sgpu_decl.agent.attempt.growing_log import GrowingLog, LogPart

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from sgpu_decl.agent.node.platform import PlatformTable

_DROPPED = b"sgpu: %d bytes of older output were dropped: the log had grown too long\n"


def say(text: str) -> None:
    """Write a line of the agent."""
    _write(f"sgpu: {text}\n".encode("utf-8", "replace"))


def _write(data: bytes) -> None:
    rest = memoryview(data)
    try:
        while rest:
            rest = rest[os.write(1, rest) :]
    except OSError as error:
        if error.errno not in (errno.EPIPE, errno.EIO, errno.ENOSPC, errno.EBADF):
            raise  # else nobody reads stdout, or the disk is full: the run goes on


class Echo:
    """For the run in `folder`: its agent's log, and those of the ranks on this node. `hide` removes
    the values of secrets from a text."""

    def __init__(self, folder: str, hide: Callable[[str], str], platform: PlatformTable) -> None:
        self._marks = {"stdout": platform.stdout_mark, "stderr": platform.stderr_mark}
        self._ranks = os.path.join(folder, "ranks")
        self._hide = hide
        self._tails = {"agent": _Tail(os.path.join(folder, "agent.log"), b"")}
        self._restarts: dict[int, int] = {}

    def turn(self) -> bool:
        """Copy a part of the new output; return whether there was any."""
        self._discover()
        busy = False
        for tail in self._tails.values():
            busy = self._advance(tail) or busy
        return busy

    def finish(self) -> None:
        """Copy the rest, once nobody writes any more, unfinished lines included."""
        self._discover()
        while self._tails:
            self._end(next(iter(self._tails)))

    def _discover(self) -> None:
        """Find the logs of new ranks; those of the restart before are complete then."""
        for rank in numbers_in(self._ranks):
            for restart in numbers_in(os.path.join(self._ranks, str(rank))):
                if restart <= self._restarts.get(rank, -1):
                    continue
                self._restarts[rank] = restart
                for stream, mark in self._marks.items():
                    self._end(f"{rank} {stream}")
                    path = os.path.join(self._ranks, str(rank), str(restart), f"{stream}.log")
                    self._tails[f"{rank} {stream}"] = _Tail(path, mark.format(rank).encode())

    def _advance(self, tail: _Tail) -> bool:
        part = tail.read()
        if part.dropped:
            _write(tail.mark + _DROPPED % part.dropped)
        self._pass_on(tail, part)
        return part.size > 0

    def _end(self, name: str) -> None:
        tail = self._tails.pop(name, None)
        if tail is not None:
            while self._advance(tail):
                pass
            self._pass_on(tail, tail.last())

    def _pass_on(self, tail: _Tail, part: LogPart) -> None:
        if part.lines is not None:
            text = part.lines.decode("utf-8", "surrogateescape")
            whole = self._hide(text).encode("utf-8", "surrogateescape").split(b"\n")
            _write(b"".join(tail.mark + line + b"\n" for line in whole))


class _Tail(GrowingLog):
    """A log, and the mark of its lines."""

    def __init__(self, path: str, mark: bytes) -> None:
        super().__init__(path)
        self.mark = mark
