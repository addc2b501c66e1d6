"""Packs: small files of the store of code, many in one file. To make a file of its own for each of
them takes ten times as long.

packs/<hex>.pack   one line of JSON, `[[digest, size], …]`, and then the contents in this order

The name is the SHA-256 of the first line. A pack with another first line, or with another length
than its sizes add up to, as after a power cut, does not count. Whoever reads a content compares its
digest.
"""

import contextlib
import hashlib
import json
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import BinaryIO, NamedTuple

from sgpu_decl.model.jsonable import canonical

__all__ = ["CodePacks", "Read"]

Read = Callable[[str], bytes | None]
"""Returns the content of a digest; `None` if no pack has it."""

_BUFFER = 1 << 20  # bytes


class _Place(NamedTuple):
    path: str
    offset: int
    size: int


class CodePacks:
    """The packs in a folder, which need not exist, as they were at the last `refresh`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._changed: int | None = None
        self._places: dict[str, _Place] = {}

    def refresh(self) -> None:
        """Read what the packs hold, if some came or went."""
        try:
            changed = os.stat(self._folder).st_mtime_ns
        except FileNotFoundError:
            changed = None
        if changed == self._changed:
            return
        self._places = {}
        for path in self._folder.glob("*.pack"):
            for digest, place in _places(os.fspath(path)):
                self._places[digest] = place
        self._changed = changed

    def __contains__(self, digest: str) -> bool:
        return digest in self._places

    @contextlib.contextmanager
    def reader(self) -> Iterator[Read]:
        """A function that reads contents, fastest in the order in which they were written."""
        file: BinaryIO | None = None

        def read(digest: str) -> bytes | None:
            nonlocal file
            place = self._places.get(digest)
            if place is None:
                return None
            if file is None or file.name != place.path:
                if file is not None:
                    file.close()
                try:
                    file = open(place.path, "rb", buffering=_BUFFER)  # noqa: SIM115
                except FileNotFoundError:
                    file = None
                    return None
            file.seek(place.offset)
            return file.read(place.size)

        try:
            yield read
        finally:
            if file is not None:
                file.close()

    def write(
        self, files: Sequence[tuple[str, int]], contents: Iterable[bytes], temporary: str
    ) -> None:
        """Write a pack.

        Args:
            files: the digest and the size of each content, in the order of `contents`.
            temporary: a new path on the same file system. The pack lies there until it is whole.

        Raises:
            OSError: it cannot be written.
        """
        header = canonical([list(file) for file in files]).encode() + b"\n"
        self._folder.mkdir(mode=0o700, exist_ok=True)
        handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            with open(handle, "wb", buffering=_BUFFER) as pack:
                pack.write(header)
                pack.writelines(contents)
            os.rename(temporary, self._folder / f"{hashlib.sha256(header).hexdigest()}.pack")
        except BaseException:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(temporary)
            raise

    def drop(self, digest: str) -> None:
        """Delete the pack that holds a damaged content: its other contents may be damaged too."""
        if place := self._places.get(digest):
            with contextlib.suppress(OSError):
                os.unlink(place.path)

    def sweep(self, needed: Collection[str], before: float) -> int:
        """Delete the packs with no content that is needed, if they were written before a time, in
        seconds since the epoch; returns the bytes that were freed."""
        freed = 0
        for path in self._folder.glob("*.pack"):
            facts = path.stat()
            holds = (digest for digest, _ in _places(os.fspath(path)))
            if facts.st_mtime < before and not any(digest in needed for digest in holds):
                path.unlink(missing_ok=True)
                freed += facts.st_size
        return freed

    def check(self, most: int) -> dict[Path, bool]:
        """Whether each pack is whole, by its first line, its length and up to `most` contents."""
        return {path: _is_whole(path, most) for path in sorted(self._folder.glob("*.pack"))}


def _is_whole(path: Path, most: int) -> bool:
    places = _places(os.fspath(path))
    with path.open("rb") as file:
        for digest, place in places[:: -(-len(places) // most) or 1]:
            file.seek(place.offset)
            if hashlib.sha256(file.read(place.size)).hexdigest() != digest:
                return False
    return bool(places)


def _places(path: str) -> list[tuple[str, _Place]]:
    """What a pack holds and where; nothing if its first line or its length is damaged."""
    try:
        with open(path, "rb") as file:
            header = file.readline()
            length = os.fstat(file.fileno()).st_size
    except FileNotFoundError:
        return []
    if hashlib.sha256(header).hexdigest() != os.path.basename(path).removesuffix(".pack"):
        return []
    places, offset = [], len(header)
    for digest, size in json.loads(header):
        places.append((digest, _Place(path, offset, size)))
        offset += size
    return places if offset == length else []
