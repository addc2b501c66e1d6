"""A log that is read while a rank writes it."""

from __future__ import annotations

import contextlib
import errno
import os
from typing import NamedTuple

from sgpu_decl.agent.system.safe_files import regular_opener

_CHUNK = 1 << 18
_LONGEST_LINE = 1 << 20
# The file is missing, or the rank put a FIFO, a device or a socket in its place.
_NO_LOG = (errno.ENOENT, errno.EINVAL, errno.ENXIO)


class LogPart(NamedTuple):
    """The result of one read.

    Attributes:
        dropped: how many bytes before the lines the bound of the log has deleted.
        begin: the offset of the first line.
        lines: whole lines, without the last line feed; `None` for none.
        size: how many bytes were read; 0 at the end.
    """

    dropped: int
    begin: int
    lines: bytes | None
    size: int


class GrowingLog:
    """One file, which may be missing so far. Memory holds one chunk and one unfinished line; a line
    that grows too long is broken."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = path
        self.offset = 0
        self._rest = b""

    def read(self, end: int | None = None) -> LogPart:
        """Read the next part, up to the offset `end`.

        Raises:
            OSError: the file is there and cannot be read.
        """
        try:
            file = open(self.path, "rb", buffering=0, opener=regular_opener)  # noqa: SIM115  closed below
        except OSError as error:
            if error.errno not in _NO_LOG:
                raise
            return LogPart(0, self.offset, None, 0)
        with file:
            start, dropped = self.offset, 0
            with contextlib.suppress(OSError):  # at its end
                start = os.lseek(file.fileno(), self.offset, os.SEEK_DATA)
            if start > self.offset:  # a hole of the log bound: go on at the next whole line
                partial, newline, _ = file.read(_CHUNK).partition(b"\n")
                start += len(partial) + len(newline)
                dropped = start - self.offset + len(self._rest)
                self.offset, self._rest = start, b""
            most = _CHUNK if end is None else max(0, min(_CHUNK, end - self.offset))
            file.seek(self.offset)
            chunk = file.read(most)
        begin = self.offset - len(self._rest)
        self.offset += len(chunk)
        lines, newline, self._rest = (self._rest + chunk).rpartition(b"\n")
        if len(self._rest) > _LONGEST_LINE:
            lines, newline, self._rest = lines + newline + self._rest, b"\n", b""
        return LogPart(dropped, begin, lines if newline else None, len(chunk))

    def last(self) -> LogPart:
        """Return the unfinished line at the end of the file, if there is one."""
        rest, self._rest = self._rest, b""
        return LogPart(0, self.offset - len(rest), rest or None, len(rest))
