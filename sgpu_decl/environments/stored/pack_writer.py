"""Environments on their way to workers: packs of what is not there yet, and then their index.

Objects are cut into packs by their own names, in the order of paths: what changes in one package
changes the packs around it and no other. Packs that were sent before are used again where at least
half of what they hold is needed.
"""

import hashlib
import os
import tempfile
import threading
import uuid
import zlib
from collections.abc import Collection, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Protocol

from sgpu_decl.agent.environment.manifest import Manifest
from sgpu_decl.agent.environment.packs import MOST, Index, Pack, index_name, object_sizes
from sgpu_decl.errors import SgpuError
from sgpu_decl.model.step_progress import Progress, Sent

__all__ = ["FolderPlace", "PackPlace", "make_index", "send", "write_pack"]

_THREADS = 2
_CHUNK = 1 << 20
_LEVEL = 1  # higher ones take up to three times as long, and save a tenth
_GZIP = 31
_CUT = "00"  # objects whose names begin so end a pack: one of 256


class PackPlace(Protocol):
    """Where packs go. A file is there whole, or it is not there."""

    def has(self, names: Collection[str]) -> set[str]:
        """Those of the files that are there."""

    def put(self, name: str, file: Path, sent: Sent) -> None:
        """Bring a file there; one that is there already has the same content. `sent` is told
        meanwhile how many bytes of it are under way, where that takes long."""

    def get(self, name: str, file: Path) -> None:
        """Fetch a file to a path.

        Raises:
            FileNotFoundError: it is not there.
        """


class FolderPlace:
    """A folder that workers see, too."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def has(self, names: Collection[str]) -> set[str]:
        """Those of the files that are there."""
        there = set(os.listdir(self._folder)) if self._folder.is_dir() else set()
        return there.intersection(names)

    def put(self, name: str, file: Path, sent: Sent) -> None:  # noqa: ARG002  it does not take long
        """Bring a file there, under its name only when it is on the disk."""
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        _copy(file, self._folder / name)

    def get(self, name: str, file: Path) -> None:
        """Fetch a file to a path; see `Place`."""
        _copy(self._folder / name, file)


def make_index(manifest: Manifest, known: Iterable[Pack] = ()) -> Index:
    """Say which packs bring an environment: of those that are `known` to be there, and new ones."""
    wanted = object_sizes(manifest)
    packs: list[Pack] = []
    there: set[str] = set()
    for pack in known:
        useful = sum(size for key, size in pack.contents if wanted.get(key) == size)
        keys = {key for key, _ in pack.contents}
        if useful and 2 * useful >= pack.size and there.isdisjoint(keys):
            packs.append(pack)
            there |= keys
    rest = [(key, size) for key, size in wanted.items() if key not in there]
    return Index(manifest.digest, (*packs, *_cut(rest)))


def send(index: Index, objects: Path, place: PackPlace, progress: Progress) -> None:
    """Bring to a place what it lacks of an environment, its index last.

    Packs that are there are not made again, so that a transfer that was cut off goes on.

    Args:
        objects: the folder of objects of the store.
        progress: told `sending`, in bytes of content.

    Raises:
        SgpuError: an object is damaged, or the place takes nothing.
    """
    there = place.has([pack.name for pack in index.packs])
    missing = [pack for pack in index.packs if pack.name not in there]
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

    with tempfile.TemporaryDirectory(prefix="sgpu-packs-") as scratch:
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
            hashed = hashlib.sha256()
            read = 0
            for chunk in _chunks(objects / key[:2] / key):
                read += len(chunk)
                hashed.update(chunk)
                target.write(deflate.compress(chunk))
            if read != size or hashed.hexdigest() != key[:64]:
                raise SgpuError(
                    f"the object {key} of the environment is missing or damaged in the store",
                    hint="plan and apply again: it is taken in once more",
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
    """Copy a file so that it is there whole or not at all, whatever happens."""
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
