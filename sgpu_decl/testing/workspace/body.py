"""The body of a request: in memory while it is small, on disk when it is not."""

from collections.abc import Iterable
from io import BytesIO
from pathlib import Path
from typing import BinaryIO
from uuid import uuid4

__all__ = ["Body", "spooled"]

_IN_MEMORY = 1 << 20


class Body:
    """What came with a request. `folder` is where bodies arrive, on the disk where they stay."""

    def __init__(self, folder: Path, *, data: bytes = b"", file: Path | None = None) -> None:
        self._folder = folder
        self._data = data
        self._file = file
        self.size = len(data) if file is None else file.stat().st_size

    @property
    def in_memory(self) -> bool:
        """Whether it lies in memory, not on disk."""
        return self._file is None

    def read(self) -> bytes:
        """All bytes."""
        return self._data if self._file is None else self._file.read_bytes()

    def open(self) -> BinaryIO:
        """The bytes, as a stream from the beginning."""
        return BytesIO(self._data) if self._file is None else self._file.open("rb")

    def move_to(self, target: Path) -> None:
        """Put it at `target`, atomically: who looks sees what was there before, or all of it."""
        source = self._file
        if source is None:
            source = self._folder / uuid4().hex
            source.write_bytes(self._data)
        source.replace(target)
        if self._file is not None:
            self._file = target

    def discard(self) -> None:
        """Delete what has found no other place."""
        if self._file is not None and self._file.parent == self._folder:
            self._file.unlink(missing_ok=True)


def spooled(blocks: Iterable[bytes], folder: Path) -> Body:
    """Take a body in. A big one goes to a file of its own in `folder`, and is gone if the blocks
    raise an error on the way."""
    small: list[bytes] = []
    size = 0
    source = iter(blocks)
    for block in source:
        small.append(block)
        size += len(block)
        if size > _IN_MEMORY:
            break
    else:
        return Body(folder, data=b"".join(small))
    file = folder / uuid4().hex
    try:
        with file.open("wb") as out:
            out.writelines(small)
            out.writelines(source)
    except BaseException:
        file.unlink(missing_ok=True)
        raise
    return Body(folder, file=file)
