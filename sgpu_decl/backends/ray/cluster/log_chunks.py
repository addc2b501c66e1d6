"""The lines of one node in files of bounded size, which clients read whole: the dashboard reads no
part of a file by its offset."""

from __future__ import annotations

import contextlib
import os

__all__ = ["CHUNK", "LogChunks"]

CHUNK = 256 << 10
"""Bytes of a file, at most."""


class LogChunks:
    """Files `0.log`, `1.log` and so on in a folder. A file is complete once the next one is there.
    It ends with a whole line, unless one alone is longer: that goes on in the next file. No file is
    empty.

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
