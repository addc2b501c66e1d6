"""Sends environments to workers: packs of missing objects, and then an index.

Objects are cut into packs by their names, in the order of paths: a changed package changes only the
packs around it. An older pack is used again if at least half of its content is needed.
"""

import hashlib
import os
import threading
import uuid
import zlib
from collections.abc import Collection, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Protocol

from sgpu_decl.agent.private_folder import private_folder
from sgpu_decl.content.manifest import Manifest
from sgpu_decl.content.packs import MOST, Index, Pack, index_name, needed
from sgpu_decl.errors import SgpuError
from sgpu_decl.model.step_progress import Progress, Sent
from sgpu_decl.scratch_folders import scratch_folder

_THREADS = 2
_CHUNK = 1 << 20
_LEVEL = 1  # higher levels take up to three times as long, and save a tenth
_GZIP = 31
_CUT = "00"  # an object of such a name ends a pack: one of 256


class PackPlace(Protocol):
    """Where packs go. A file is written whole or not at all."""

    def has(self, names: Collection[str]) -> set[str]:
        """The files of these names that exist."""

    def put(self, name: str, file: Path, sent: Sent) -> None:
        """Write a file; an existing one has the same content. `sent` is called with the number of
        bytes, where that takes long."""

    def get(self, name: str, file: Path) -> None:
        """Fetch a file to a path.

        Raises:
            FileNotFoundError: it is not there.
        """


class PackFolder:
    """A folder that workers see too."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def has(self, names: Collection[str]) -> set[str]:
        """The files of these names that exist."""
        existing = set(os.listdir(self._folder)) if self._folder.is_dir() else set()
        return existing.intersection(names)

    def put(self, name: str, file: Path, sent: Sent) -> None:  # noqa: ARG002  it does not take long
        """Write a file, and rename it when it is on the disk."""
        private_folder(self._folder)
        _copy(file, self._folder / name)

    def get(self, name: str, file: Path) -> None:
        """Fetch a file to a path; see `PackPlace`."""
        _copy(self._folder / name, file)


def make_index(manifest: Manifest, existing: Iterable[Pack] = ()) -> Index:
    """Choose the packs that carry an environment: `existing` ones, and new ones for the rest."""
    objects = needed(manifest)
    packs: list[Pack] = []
    packed: set[str] = set()
    for pack in existing:
        useful = sum(size for key, size in pack.contents if objects.get(key) == size)
        keys = {key for key, _ in pack.contents}
        if useful and 2 * useful >= pack.size and packed.isdisjoint(keys):
            packs.append(pack)
            packed |= keys
    rest = [(key, size) for key, size in objects.items() if key not in packed]
    return Index(manifest.digest, (*packs, *_cut(rest)))


def send(index: Index, objects: Path, place: PackPlace, progress: Progress) -> None:
    """Send the missing packs of an environment, and its index last.

    Existing packs are not made again, so an interrupted transfer continues.

    Args:
        objects: the folder of objects of the store.
        progress: gets `sending`, in bytes of content.

    Raises:
        SgpuError: an object is damaged, or the place cannot be written.
    """
    existing = place.has([pack.name for pack in index.packs])
    missing = [pack for pack in index.packs if pack.name not in existing]
    total, done = sum(pack.size for pack in missing), 0
    lock = threading.Lock()

    def bring(pack: Pack) -> None:
        file = Path(scratch, pack.name)
        write_pack(pack, objects, file)
        size, part = file.stat().st_size, 0

        def tell(sent: int) -> None:
            nonlocal done, part
            with lock:
                before, part = part, pack.size * sent // size
                done += part - before
                progress.advance("sending", done, total)

        place.put(pack.name, file, tell)
        tell(size)
        file.unlink()

    with scratch_folder("packs") as scratch:
        with ThreadPoolExecutor(_THREADS) as pool:
            for future in [pool.submit(bring, pack) for pack in missing]:
                future.result()
        name = index_name(index.manifest)
        file = Path(scratch, name)
        file.write_bytes(index.to_bytes())
        place.put(name, file, lambda _: None)


def write_pack(pack: Pack, objects: Path, file: Path) -> None:
    """Write a pack to a file.

    Raises:
        SgpuError: an object is missing or damaged.
    """
    deflate = zlib.compressobj(_LEVEL, zlib.DEFLATED, _GZIP)
    with open(file, "wb") as target:
        target.write(deflate.compress(pack.head))
        for key, size in pack.contents:
            sha = hashlib.sha256()
            read = 0
            for chunk in _chunks(objects / key[:2] / key):
                read += len(chunk)
                sha.update(chunk)
                target.write(deflate.compress(chunk))
            if read != size or sha.hexdigest() != key[:64]:
                raise SgpuError(
                    f"the object {key} of the environment is missing or damaged in the store",
                    hint="plan and apply again: the environment is stored again",
                    code="environment_damaged",
                )
        target.write(deflate.flush())


def _chunks(path: Path) -> Iterator[bytes]:
    try:
        with open(path, "rb") as file:
            while chunk := file.read(_CHUNK):
                yield chunk
    except FileNotFoundError:
        return


def _cut(objects: Iterable[tuple[str, int]]) -> Iterator[Pack]:
    contents: list[tuple[str, int]] = []
    size = 0
    for key, more in objects:
        if contents and size + more > MOST:
            yield Pack(tuple(contents))
            contents, size = [], 0
        contents.append((key, more))
        size += more
        if key.startswith(_CUT):
            yield Pack(tuple(contents))
            contents, size = [], 0
    if contents:
        yield Pack(tuple(contents))


def _copy(source: Path, target: Path) -> None:
    """Copy a file so that it exists whole or not at all."""
    temporary = target.with_name(f".{uuid.uuid4().hex}.part")
    try:
        with open(source, "rb") as reading, open(temporary, "xb") as writing:
            while chunk := reading.read(_CHUNK):
                writing.write(chunk)
            writing.flush()
            os.fsync(writing.fileno())
        os.rename(temporary, target)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
