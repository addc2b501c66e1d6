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
from collections.abc import Callable, Collection, Iterable, Iterator, KeysView, Sequence
from itertools import accumulate, islice, repeat
from pathlib import Path
from typing import BinaryIO

from sgpu_decl.model.jsonable import canonical

Read = Callable[[str], bytes | None]
"""Returns the content of a digest; `None` if no pack has it."""

_BUFFER = 1 << 20  # bytes


_Places = dict[str, tuple[str, int, int]]
"""The path, the offset and the size of each content."""


class ObjectPacks:
    """The packs in a folder, which need not exist. Any thread may use them."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._known: tuple[int, _Places] = (0, {})  # as they were when the folder changed last

    def digests(self) -> KeysView[str]:
        """What the packs hold now."""
        return self._places().keys()

    @contextlib.contextmanager
    def reader(self) -> Iterator[Read]:
        """A function that reads contents, fastest in the order in which they were written."""
        places = self._places()
        file: BinaryIO | None = None

        def read(digest: str) -> bytes | None:
            nonlocal file
            place = places.get(digest)
            if place is None:
                return None
            path, offset, size = place
            if file is None or file.name != path:
                if file is not None:
                    file.close()
                try:
                    file = open(path, "rb", buffering=_BUFFER)  # noqa: SIM115
                except FileNotFoundError:
                    file = None
                    return None
            file.seek(offset)
            return file.read(size)

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
            self._known = 0, {}  # the folder may show the same time as before
        except BaseException:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(temporary)
            raise

    def drop(self, digest: str) -> None:
        """Delete the pack that holds a damaged content: its other contents may be damaged too."""
        if place := self._places().get(digest):
            with contextlib.suppress(OSError):
                os.unlink(place[0])

    def unneeded(self, needed: Collection[str], before: float) -> Iterator[tuple[str, int]]:
        """The packs with no content that is needed, each with its bytes, if they were written
        before a time, in seconds since the epoch."""
        for path in self._folder.glob("*.pack"):
            facts = path.stat()
            if facts.st_mtime < before and _contents(os.fspath(path)).keys().isdisjoint(needed):
                yield os.fspath(path), facts.st_size

    def check(self, most: int) -> dict[Path, bool]:
        """Whether each pack is whole, by its first line, its length and up to `most` contents."""
        return {path: _is_whole(path, most) for path in sorted(self._folder.glob("*.pack"))}

    def _places(self) -> _Places:
        try:
            changed = os.stat(self._folder).st_mtime_ns
        except FileNotFoundError:
            return {}
        before, places = self._known
        if changed != before:
            places = {}
            for path in self._folder.glob("*.pack"):
                places |= _contents(os.fspath(path))
            self._known = changed, places
        return places


def _is_whole(path: Path, most: int) -> bool:
    places = _contents(os.fspath(path))
    step = -(-len(places) // most) or 1
    with path.open("rb") as file:
        for digest, (_, offset, size) in islice(places.items(), 0, None, step):
            file.seek(offset)
            if hashlib.sha256(file.read(size)).hexdigest() != digest:
                return False
    return bool(places)


def _contents(path: str) -> _Places:
    """What a pack holds and where; nothing if its first line or its length is damaged."""
    try:
        with open(path, "rb") as file:
            header = file.readline()
            length = os.fstat(file.fileno()).st_size
    except FileNotFoundError:
        return {}
    if hashlib.sha256(header).hexdigest() != os.path.basename(path).removesuffix(".pack"):
        return {}
    digests, sizes = zip(*json.loads(header), strict=True)
    *offsets, end = accumulate(sizes, initial=len(header))
    if end != length:
        return {}
    return dict(zip(digests, zip(repeat(path), offsets, sizes), strict=True))
