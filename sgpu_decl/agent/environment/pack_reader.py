"""Reads objects from packs, and verifies the SHA-256 of each.

A pack is read into a folder of its own, and its objects are moved to the others once all of it was
verified. So a pack that is refused leaves nothing, and an interrupted one is read again.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import zlib

from sgpu_decl.agent.environment.packs import BadPack, Index, Pack, index_name, object_sizes
from sgpu_decl.agent.environment.tree_files import FIXED_NS, clear, making, remove
from sgpu_decl.agent.environment.workers import Crew

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from typing import BinaryIO

    from sgpu_decl.agent.environment.manifest import Manifest

    # The file, its contents, the keys to read, the folder to read it to, and the folder of objects.
    Task = tuple[str, Sequence[tuple[str, int]], Sequence[str], str, str]

__all__ = ["read_pack", "unpack", "unpack_task"]

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
    """Read the missing objects of a manifest from a folder of packs.

    Args:
        manifest: its index lies beside the packs.
        packs: the folder of packs.
        objects: the folder of objects; it is made if it is missing.
        python: the interpreter of the two processes that read packs.
        advance: called with `unpacking`, in bytes of content.

    Raises:
        BadPack: the index or a pack is missing, is cut off, or has another content.
        OSError: the disk is full or broken.
    """
    objects = os.path.abspath(objects)
    os.makedirs(objects, mode=0o700, exist_ok=True)
    present = {name for part in os.listdir(objects) for name in os.listdir(f"{objects}/{part}")}
    missing = {key for key in object_sizes(manifest) if key not in present}
    index = _index(manifest, packs)
    useful = [pack for pack in index.packs if any(key in missing for key, _ in pack.contents)]
    if not useful:
        return
    store = os.path.dirname(objects)
    clear(store)
    place, lock = making(store)
    total, done = sum(pack.size for pack in useful), 0

    def note(task: Task, errors: list[str]) -> None:
        nonlocal done
        if errors:
            raise BadPack(errors[0])
        done += sum(size for _, size in task[1])
        advance("unpacking", done, total)

    try:
        os.mkdir(place, 0o700)
        with contextlib.closing(Crew(python)) as crew:
            crew.work(
                "unpack", (_task(pack, missing, packs, place, objects) for pack in useful), note
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


def _task(pack: Pack, missing: set[str], packs: str, place: str, objects: str) -> Task:
    paths = [os.path.abspath(os.path.join(packs, pack.name)), os.path.join(place, pack.name)]
    file, folder, target = (
        os.fsencode(path).decode("utf-8", "surrogateescape") for path in (*paths, objects)
    )
    keys = [key for key, _ in pack.contents if key in missing]
    return (file, pack.contents, keys, folder, target)


def unpack_task(task: Task) -> list[str]:
    """Read one pack, as a worker; return why it is refused, if it is."""
    path, contents, keys, place, objects = task
    pack = Pack(tuple((key, size) for key, size in contents))
    os.mkdir(place, 0o700)
    try:
        with open(path, "rb") as file:
            read_pack(file, pack, set(keys), place)
    except FileNotFoundError:
        return [f"there is no pack `{path}`: the transfer was not completed"]
    except BadPack as error:
        return [f"the pack `{path}` is refused: {error}"]
    for key in keys:
        folder = os.path.join(objects, key[:2])
        os.makedirs(folder, mode=0o700, exist_ok=True)
        os.rename(os.path.join(place, key), os.path.join(folder, key))
    return []


def read_pack(file: BinaryIO, pack: Pack, keys: set[str], place: str) -> None:
    """Read a pack to its end, and write the objects of these keys to a folder.

    Raises:
        BadPack: its content is not exactly that of its name.
    """
    if pack.size > _DENSEST * os.fstat(file.fileno()).st_size:
        raise BadPack("it is too small for its contents")
    stream = _Stream(file)
    head = pack.head
    if b"".join(stream.read(len(head))) != head:
        raise BadPack("its beginning does not fit its name")
    for key, size in pack.contents:
        if key not in keys:
            for _ in stream.read(size):
                pass
            continue
        hashed = hashlib.sha256()
        with open(os.path.join(place, key), "xb") as target:
            for chunk in stream.read(size):
                hashed.update(chunk)
                target.write(chunk)
            target.flush()
            os.fchmod(target.fileno(), 0o555 if key.endswith(".x") else 0o444)
            os.utime(target.fileno(), ns=(FIXED_NS, FIXED_NS))
        if hashed.hexdigest() != key[:64]:
            raise BadPack(f"the content of {key} does not fit its name")
    stream.end()


class _Stream:
    """The content of a gzip file, with one chunk at a time in memory."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._inflate = zlib.decompressobj(_GZIP)
        self._waiting = b""

    def read(self, size: int) -> Iterator[bytes]:
        """Yield exactly so many bytes, in chunks."""
        while size:
            chunk = self._next(min(size, _CHUNK))
            if not chunk:
                raise BadPack("it is cut off")
            size -= len(chunk)
            yield chunk

    def end(self) -> None:
        """Refuse anything that follows."""
        if self._next(1) or not self._inflate.eof:
            raise BadPack("it has more than its contents, or is cut off")
        if self._waiting or self._inflate.unused_data or self._file.read(1):
            raise BadPack("something follows its end")

    def _next(self, most: int) -> bytes:
        try:
            while not self._inflate.eof:
                if not self._waiting:
                    self._waiting = self._file.read(_CHUNK)
                data = self._waiting
                chunk = self._inflate.decompress(data, most)
                self._waiting = self._inflate.unconsumed_tail
                if chunk or not data:
                    return chunk
        except zlib.error as error:
            raise BadPack(f"it cannot be decompressed: {error}") from None
        return b""
