"""Copies the logs of nodes, which lie in the launch folder, to the log of the job, so that
`ray job logs` and Ray's dashboard show them."""

from __future__ import annotations

import contextlib
import os

from sgpu_decl.agent.attempt.growing_log import GrowingLog

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence


_MOST = 1_000_000_000  # bytes: the log of a job lies on the disk of the head node
_TURN = 64  # pieces of a log that are copied before the driver looks at something else


class LogCopy:
    """`most` bounds the bytes that all copies of this process write together."""

    def __init__(self, most: int = _MOST) -> None:
        self._left = most
        self._logs: list[GrowingLog] = []

    def begin(self, paths: Sequence[str]) -> None:
        """Copy these logs from now on."""
        self._logs = [GrowingLog(path) for path in paths]

    def copy_new_lines(self) -> None:
        """Copy whole lines that are new."""
        for log in self._logs:
            for _ in range(_TURN):
                part = self._read(log)
                if not part:
                    break

    def finish(self) -> None:
        """Copy the rest; nobody writes to the logs any more."""
        self.copy_new_lines()
        for log in self._logs:
            last = log.last().lines
            if last is not None:
                self.write(last + b"\n")
        self._logs = []

    def _read(self, log: GrowingLog) -> int:
        try:
            part = log.read()
        except OSError:
            return 0
        if part.lines is not None:
            self.write(part.lines + b"\n")
        return part.size

    def write(self, data: bytes) -> None:
        """Write whole lines."""
        if self._left <= 0:
            return
        self._left -= len(data)
        if self._left <= 0:
            data += b"sgpu: the log of this job ends here; `sgpu logs` shows the rest\n"
        rest = memoryview(data)
        with contextlib.suppress(OSError):  # the disk of the head is full: the run goes on
            while rest:
                rest = rest[os.write(1, rest) :]
