"""Garbage collection in the store of environments."""

import contextlib
import os
from collections.abc import Callable, Collection, Iterator
from pathlib import Path

from sgpu_decl.content.manifest import Manifest
from sgpu_decl.staging.shared_store import YOUNG_SECONDS, Garbage

__all__ = ["garbage"]


def garbage(
    root: Path,
    referred: Collection[str],
    manifest: Callable[[str], Manifest | None],
    build_of: Callable[[str], str | None],
    now: float,
) -> Garbage:
    """Environments that are neither referred to nor young, and the objects that only they use.

    The caller holds the lock of the store.

    Args:
        referred: digests of manifests.
        manifest, build_of: read a manifest, and the digest of a built lock.

    Raises:
        OSError: a manifest that is needed cannot be read.
    """
    live: set[str] = set()
    files: list[Path] = []
    for path in (root / "manifests").glob("*.json"):
        if f"sha256:{path.stem}" in referred or now - path.stat().st_mtime < YOUNG_SECONDS:
            live.add(path.stem)
        else:
            files.append(path)
    files += (path for path in (root / "origins").glob("*.json") if path.stem not in live)
    for path in (root / "built").glob("*.json"):
        built = (build_of(path.stem) or "")[7:]
        if built not in live and now - path.stat().st_mtime >= YOUNG_SECONDS:
            files.append(path)
    trees = [
        os.fspath(path)
        for path in root.glob("trees/[0-9a-f]*")
        if path.name not in live and now - path.lstat().st_ctime >= YOUNG_SECONDS
    ]
    files += (root / "incoming").iterdir()  # left by writers that were killed: none writes now
    keys: set[str] = set()
    for name in live:
        environment = manifest(f"sha256:{name}")
        if environment is not None:
            keys |= {file.key for file in (*environment.files, *environment.bytecode)}
    objects = [
        *_old(root / "objects", now, keys),
        *_old(root / "bytecode", now, ()),  # of older versions: trees have their own
    ]
    return Garbage(
        files=(*map(os.fspath, files), *(path for path, _ in objects)),
        trees=tuple(trees),
        size=sum(size for _, size in objects),
    )


def _old(folder: Path, now: float, kept: Collection[str]) -> Iterator[tuple[str, int]]:
    """What is not kept, with its bytes. Objects carry a fixed modification time, so their age is
    that of the inode (ctime)."""
    for entry in _entries(folder):
        if entry.name in kept:
            continue
        with contextlib.suppress(FileNotFoundError):
            facts = entry.stat(follow_symlinks=False)
            if now - facts.st_ctime >= YOUNG_SECONDS:
                yield entry.path, facts.st_size


def _entries(folder: Path) -> Iterator["os.DirEntry[str]"]:
    with contextlib.suppress(FileNotFoundError), os.scandir(folder) as inner:
        for entry in inner:
            if entry.is_dir(follow_symlinks=False):
                with os.scandir(entry) as files:
                    yield from files
