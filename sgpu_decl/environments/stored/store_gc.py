"""Garbage collection in the store of environments."""

import contextlib
import os
from collections.abc import Callable, Collection, Iterator
from pathlib import Path

from sgpu_decl.agent.environment.manifest import Manifest
from sgpu_decl.staging.shared_store import YOUNG_SECONDS


def sweep(
    root: Path,
    referred: Collection[str],
    manifest: Callable[[str], Manifest | None],
    build_of: Callable[[str], str | None],
    now: float,
) -> int:
    """Delete environments that are neither referred to nor young, and the objects that only they
    use.

    The caller holds the lock of the store.

    Args:
        referred: digests of manifests.
        manifest, build_of: read a manifest, and the digest of a built lock.

    Returns:
        The bytes that were freed.
    """
    from sgpu_decl.agent.environment.tree_files import clear, discard

    live: set[str] = set()
    for path in (root / "manifests").glob("*.json"):
        if f"sha256:{path.stem}" in referred or now - path.stat().st_mtime < YOUNG_SECONDS:
            live.add(path.stem)
        else:
            path.unlink(missing_ok=True)
    for path in (root / "origins").glob("*.json"):
        if path.stem not in live:
            path.unlink(missing_ok=True)
    for path in (root / "built").glob("*.json"):
        if (build_of(path.stem) or "")[
            7:
        ] not in live and now - path.stat().st_mtime >= YOUNG_SECONDS:
            path.unlink(missing_ok=True)
    for path in root.glob("trees/[0-9a-f]*"):
        if path.name not in live and now - path.lstat().st_ctime >= YOUNG_SECONDS:
            discard(os.fspath(path))
    clear(os.fspath(root / "trees"))
    # Left by writers that were killed: none writes now.
    for path in (*(root / "incoming").iterdir(), *root.glob("*/.new-*")):
        path.unlink(missing_ok=True)
    keys: set[str] = set()
    for name in live:
        environment = manifest(f"sha256:{name}")
        if environment is not None:
            keys |= {file.key for file in (*environment.files, *environment.bytecode)}
    contents = {key[:64] for key in keys}
    freed = _delete(root / "objects", now, lambda name: name in keys)
    # Its name has the digest of its source, then its own.
    return freed + _delete(root / "bytecode", now, lambda name: name.partition("-")[0] in contents)


def _delete(folder: Path, now: float, keeps: Callable[[str], bool]) -> int:
    """Objects carry a fixed modification time, so their age is that of the inode (ctime)."""
    freed = 0
    for entry in _entries(folder):
        if keeps(entry.name):
            continue
        with contextlib.suppress(FileNotFoundError):
            facts = entry.stat(follow_symlinks=False)
            if now - facts.st_ctime >= YOUNG_SECONDS:
                os.unlink(entry.path)
                freed += facts.st_size
    return freed


def _entries(folder: Path) -> Iterator["os.DirEntry[str]"]:
    with contextlib.suppress(FileNotFoundError), os.scandir(folder) as inner:
        for entry in inner:
            if entry.is_dir(follow_symlinks=False):
                with os.scandir(entry) as files:
                    yield from files
