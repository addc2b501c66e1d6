"""The lines of one node in files of bounded size, which clients read whole: the dashboard reads no
part of a file by its offset."""

from __future__ import annotations

import os

__all__ = ["CHUNK", "LogChunks"]

CHUNK = 256 << 10
"""Bytes of a file, unless one piece of lines alone is longer."""


class LogChunks:
    """Files `0.log`, `1.log` and so on in a folder. A file is complete once the next one is
    there."""

    def __init__(self, folder: str) -> None:
        os.makedirs(folder, exist_ok=True)
        self._folder = folder
        self._number = 0
        self._size = 0

    def write(self, lines: bytes) -> None:
        """Add whole lines. Raises OSError."""
        while lines:
            if self._size and self._size + len(lines) > CHUNK:
                self._number, self._size = self._number + 1, 0
            end = len(lines) if len(lines) <= CHUNK else lines.rfind(b"\n", 0, CHUNK) + 1
            piece = lines[: end or lines.find(b"\n") + 1]
            with open(os.path.join(self._folder, f"{self._number}.log"), "ab") as file:
                file.write(piece)
            self._size += len(piece)
            lines = lines[len(piece) :]
