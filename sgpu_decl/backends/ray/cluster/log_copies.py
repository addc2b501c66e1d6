"""Copies of the logs of nodes on the head: in the log of the job, and in files for clients.

`ray job logs` and Ray's dashboard show the log of the job. Where there is no storage, clients read
files of bounded size whole: the dashboard reads no part of a file by its offset.
"""

from __future__ import annotations

import contextlib
import os

from sgpu_decl.agent.attempt.growing_log import GrowingLog

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

CHUNK = 256 << 10
"""Bytes of a file, at most."""

_MOST = 1_000_000_000  # bytes: the log of a job lies on the disk of the head node
_TURN = 64  # pieces of a log that are copied before the driver looks at something else


class LogChunks:
    """The lines of one node, as files `0.log`, `1.log` and so on in a folder.

    A file is complete once the next one is there. It ends with a whole line, unless one alone is
    longer: that goes on in the next file. No file is empty.

    What a full disk does not take is dropped, and a line says so as soon as there is room."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._number = 0
        self._size = 0
        self._dropped = 0  # bytes
        self._begun = False  # the last line is not whole

    def write(self, lines: bytes) -> None:
        """Add whole lines."""
        if lines and self._dropped:
            note = f"sgpu: {self._dropped} bytes of this log are missing: the disk was full\n"
            if not self._add(b"\n" * self._begun + note.encode()):
                self._dropped += len(lines)
                return
            self._dropped = 0
        while lines:
            if self._size and self._size + len(lines) > CHUNK:
                self._number, self._size = self._number + 1, 0
            end = len(lines) if len(lines) <= CHUNK else lines.rfind(b"\n", 0, CHUNK) + 1
            piece = lines[: end or CHUNK]
            if not self._add(piece):
                self._dropped += len(lines)
                return
            lines = lines[len(piece) :]

    def _add(self, piece: bytes) -> bool:
        """Add lines to the file of now, all or none; return whether it has them."""
        path = os.path.join(self._folder, f"{self._number}.log")
        try:
            os.makedirs(self._folder, exist_ok=True)
            with open(path, "ab") as file:
                file.write(piece)
        except OSError:
            with contextlib.suppress(OSError):
                self._cut(path)
            return False
        self._size += len(piece)
        self._begun = not piece.endswith(b"\n")
        return True

    def _cut(self, path: str) -> None:
        """Take back what came of lines that found no room. The dashboard answers about an empty
        file as about one that it cannot read."""
        if self._size:
            os.truncate(path, self._size)
        else:
            os.unlink(path)


class LogCopy:
    """Copies logs that lie in the launch folder to that of the job. `most` bounds the bytes that
    all copies of this process write together."""

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
