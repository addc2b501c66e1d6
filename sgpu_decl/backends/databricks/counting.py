"""A file that tells how far it was read: how far an upload has come."""

import io
from pathlib import Path

from sgpu_decl.environments.progress import Sent

__all__ = ["Counting"]


class Counting(io.BufferedReader):
    """Tells `told` after each read how many bytes are behind it; fewer again where an upload that
    broke off starts anew. What `told` raises ends the reading."""

    def __init__(self, path: Path, told: Sent) -> None:
        super().__init__(io.FileIO(path))
        self._told = told

    def read(self, size: int | None = -1, /) -> bytes:
        data = super().read(size)
        self._told(self.tell())
        return data
