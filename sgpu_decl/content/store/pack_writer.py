"""Sends environments to workers: packs of missing objects, and then an index.

Objects are cut into packs by their names, in the order of paths: a changed package changes only the
packs around it.
"""

import hashlib
import threading
import zlib
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Protocol

from sgpu_decl.content.manifest import Manifest
from sgpu_decl.content.packs import MOST, Index, Pack, index_name, manifest_name, needed
from sgpu_decl.errors import SgpuError
from sgpu_decl.model.step_progress import Progress, Sent
from sgpu_decl.places.file_place import PlaceEntry, ignore_bytes
from sgpu_decl.scratch_folders import scratch_folder

_THREADS = 2
_CHUNK = 1 << 20
_LEVEL = 1  # higher levels take up to three times as long, and save a tenth
_GZIP = 31
_CUT = "00"  # an object of such a name ends a pack: one of 256


def make_index(manifest: Manifest) -> Index:
    """Choose the packs that carry an environment."""
    return Index(manifest.digest, tuple(_cut(needed(manifest).items())))


class PackTarget(Protocol):
    """What `send` needs of a place: see `FilePlace`."""

    def make_folder(self, folder: str) -> None: ...

    def list(self, folder: str) -> Sequence[PlaceEntry]: ...

    def put(self, path: str, content: bytes | Path, sent: Sent = ignore_bytes) -> None: ...


def send(
    manifest: Manifest, objects: Path, files: PackTarget, folder: str, progress: Progress
) -> None:
    """Send an environment to a folder: its manifest, the packs that are missing there, and its
    index last.

    Existing packs are not made again, so an interrupted transfer continues.

    Args:
        objects: the folder of objects of the store.
        progress: gets `sending`, in bytes of content.

    Raises:
        SgpuError: an object is damaged, or the place cannot be written.
    """
    index = make_index(manifest)
    files.make_folder(folder)
    files.put(f"{folder}/{manifest_name(manifest.digest)}", manifest.to_bytes())
    existing = {item.name for item in files.list(folder)}
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

        files.put(f"{folder}/{pack.name}", file, tell)
        tell(size)
        file.unlink()

    with scratch_folder("packs") as scratch, ThreadPoolExecutor(_THREADS) as pool:
        for future in [pool.submit(bring, pack) for pack in missing]:
            future.result()
    files.put(f"{folder}/{index_name(manifest.digest)}", index.to_bytes())


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
