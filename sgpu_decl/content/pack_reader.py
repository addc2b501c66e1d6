"""Reads objects from packs, and verifies their SHA-256.

A pack is read into a folder of its own. When all of it was right, its objects are moved to the
store. So a refused pack leaves nothing, and an interrupted one starts again.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import zlib

from sgpu_decl.content.packs import BadPack, Index, Pack, index_name, needed
from sgpu_decl.content.tree_files import FIXED_NS, clear, making, remove
from sgpu_decl.content.workers import WorkerPool

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from typing import BinaryIO

    from sgpu_decl.content.manifest import Manifest

    # The file, its contents, the missing objects, the scratch folder, and the folder of objects.
    Task = tuple[str, Sequence[tuple[str, int]], Sequence[str], str, str]

_CHUNK = 1 << 18
_DENSEST = 1032  # deflate makes at most this of a byte
_GZIP = 31


def unpack(
    manifest: Manifest,
    packs: str,
    objects: str,
    python: str,
    *,
    advance: Callable[[str, int, int], None],
) -> None:
    """Unpack the missing objects of a manifest from a folder of packs.

    Args:
        manifest: the environment; its index lies beside the packs.
        packs: the folder.
        objects: the folder of objects, which is made if it is missing.
        python: the interpreter of the two processes that read packs.
        advance: gets `unpacking`, in bytes of content.

    Raises:
        BadPack: the index or a pack is missing, cut off, or has wrong content.
        OSError: the disk cannot be written.
    """
    objects = os.path.abspath(objects)
    os.makedirs(objects, mode=0o700, exist_ok=True)
    present = {name for part in os.listdir(objects) for name in os.listdir(f"{objects}/{part}")}
    missing = {key for key in needed(manifest) if key not in present}
    index = _index(manifest, packs)
    useful = [pack for pack in index.packs if any(key in missing for key, _ in pack.contents)]
    if not useful:
        return
    store = os.path.dirname(objects)
    clear(store)
    place, lock = making(store)
    total, done = sum(pack.size for pack in useful), 0

    def note(task: Task, refused: list[str]) -> None:
        nonlocal done
        if refused:
            raise BadPack(*refused)
        done += sum(size for _, size in task[1])
        advance("unpacking", done, total)

    try:
        os.mkdir(place, 0o700)
        with contextlib.closing(WorkerPool(python)) as workers:
            workers.work(
                "unpack",
                (_task(item, missing, packs, place, objects) for item in useful),
                note,
            )
    finally:
        remove(place)
        os.close(lock)


def _index(manifest: Manifest, packs: str) -> Index:
    path = os.path.join(packs, index_name(manifest.digest))
    try:
        with open(path, "rb") as file:
            return Index.from_bytes(file.read(), manifest)
    except FileNotFoundError:
        raise BadPack(f"there is no index `{path}`: the transfer was not completed") from None
    except BadPack as error:
        raise BadPack(f"the index `{path}` is refused: {error}", path) from None


def _task(pack: Pack, missing: set[str], packs: str, place: str, objects: str) -> Task:
    paths = [os.path.abspath(os.path.join(packs, pack.name)), os.path.join(place, pack.name)]
    file, own, store = (
        os.fsencode(path).decode("utf-8", "surrogateescape") for path in (*paths, objects)
    )
    return (
        file,
        pack.contents,
        [key for key, _ in pack.contents if key in missing],
        own,
        store,
    )


def unpack_task(task: Task) -> list[str]:
    """Unpack one pack in a worker; returns the reason if the pack is refused, and its path unless
    it is missing."""
    path, contents, missing, place, objects = task
    pack = Pack(tuple((key, size) for key, size in contents))
    os.mkdir(place, 0o700)
    try:
        with open(path, "rb") as file:
            read_pack(file, pack, set(missing), place)
    except FileNotFoundError:
        return [f"there is no pack `{path}`: the transfer was not completed"]
    except BadPack as error:
        return [f"the pack `{path}` is refused: {error}", path]
    for key in missing:
        folder = os.path.join(objects, key[:2])
        os.makedirs(folder, mode=0o700, exist_ok=True)
        os.rename(os.path.join(place, key), os.path.join(folder, key))
    return []


def read_pack(file: BinaryIO, pack: Pack, missing: set[str], place: str) -> None:
    """Read a pack to its end, and write its missing objects to a folder under their names.

    Raises:
        BadPack: its content is wrong.
    """
    if pack.size > _DENSEST * os.fstat(file.fileno()).st_size:
        raise BadPack("it is too small for its contents")
    stream = _Stream(file)
    head = pack.head
    if b"".join(stream.read(len(head))) != head:
        raise BadPack("its start does not match its name")
    for key, size in pack.contents:
        if key not in missing:
            for _ in stream.read(size):
                pass
            continue
        sha = hashlib.sha256()
        with open(os.path.join(place, key), "xb") as target:
            for chunk in stream.read(size):
                sha.update(chunk)
                target.write(chunk)
            target.flush()
            os.fchmod(target.fileno(), 0o555 if key.endswith(".x") else 0o444)
            os.utime(target.fileno(), ns=(FIXED_NS, FIXED_NS))
        if sha.hexdigest() != key[:64]:
            raise BadPack(f"the content of {key} does not match its name")
    stream.end()


class _Stream:
    """Reads a gzip file in chunks."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._inflate = zlib.decompressobj(_GZIP)
        self._waiting = b""

    def read(self, size: int) -> Iterator[bytes]:
        """Exactly `size` bytes, in chunks."""
        while size:
            chunk = self._next(min(size, _CHUNK))
            if not chunk:
                raise BadPack("it is cut off")
            size -= len(chunk)
            yield chunk

    def end(self) -> None:
        """Refuse further bytes."""
        if self._next(1) or not self._inflate.eof:
            raise BadPack("it is too long or cut off")
        if self._waiting or self._inflate.unused_data or self._file.read(1):
            raise BadPack("there are bytes after its end")

    def _next(self, most: int) -> bytes:
        try:
            while not self._inflate.eof:
                if not self._waiting:
                    self._waiting = self._file.read(_CHUNK)
                compressed = self._waiting
                content = self._inflate.decompress(compressed, most)
                self._waiting = self._inflate.unconsumed_tail
                if content or not compressed:
                    return content
        except zlib.error as error:
            raise BadPack(f"it cannot be decompressed: {error}") from None
        return b""
