"""The body of a request: in memory while it is small, on disk when it is not."""

from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO
from uuid import uuid4

__all__ = ["Body", "spooled"]

_IN_MEMORY = 1 << 20
_BLOCK = 1 << 18


class Body:
    """What came with a request. `read` gives all of it, `move_to` makes a file of it."""

    def __init__(self, *, data: bytes = b"", file: Path | None = None) -> None:
        self._data = data
        self._file = file
        self.size = len(data) if file is None else file.stat().st_size

    def read(self) -> bytes:
        """All bytes."""
        return self._data if self._file is None else self._file.read_bytes()

    def open(self) -> BinaryIO:
        """The bytes, as a stream from the beginning."""
        from io import BytesIO

        return BytesIO(self._data) if self._file is None else self._file.open("rb")

    def move_to(self, target: Path) -> None:
        """Put it at `target`, atomically: who looks sees what was there before, or all of it."""
        source = self._file
        if source is None:
            source = target.with_name(f".{uuid4().hex}.sgpu-part")
            source.write_bytes(self._data)
        try:
            source.replace(target)
        except OSError:
            with suppress(FileNotFoundError):
                source.unlink()
            raise
        self._file = target if self._file is not None else None

    def discard(self, folder: Path) -> None:
        """Delete what still lies in `folder`, where bodies arrive."""
        if self._file is not None and self._file.parent == folder:
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
        return Body(data=b"".join(small))
    file = folder / uuid4().hex
    try:
        with file.open("wb") as out:
            out.writelines(small)
            for block in source:
                out.write(block)
    except BaseException:
        file.unlink(missing_ok=True)
        raise
    return Body(file=file)
