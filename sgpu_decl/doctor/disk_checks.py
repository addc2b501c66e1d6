"""Disks: free space where runs write, and the stores of code and environments."""

import hashlib
import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from sgpu_decl.content.store.content_store import ContentStore, default_root
from sgpu_decl.content.store.object_packs import ObjectPacks
from sgpu_decl.diagnostics.amounts import size
from sgpu_decl.model.doctor_finding import Finding, fail, few, ok, warn
from sgpu_decl.model.state import Attempt, State
from sgpu_decl.planning.project import Project

_MEMORY = "/dev/shm"  # noqa: S108  looked at, not written to
_TEMPORARY = "/tmp"  # noqa: S108
_FULL, _SCARCE = 100 << 20, 2 << 30
_FULL_INODES, _SCARCE_INODES = 1_000, 20_000
_SHARED_FULL, _SHARED_SMALL = 16 << 20, 64 << 20
_GC = "`sgpu gc` deletes the files of old attempts, `sgpu gc --keep-last 1` those of more"
_LARGEST = 1 << 20  # bytes of an object that is read
_CONTENTS = 16  # that are read of each pack


def check_disk_space(attempts: Path, store: Path) -> Iterator[Finding]:
    """Look at the file systems of attempts and stores, of temporary files and of shared memory;
    places on the same one are looked at together."""
    places: dict[int, tuple[Path, list[str]]] = {}
    for use, path in (
        ("attempts", attempts),
        ("stored code and environments", store),
        ("temporary files", Path(_TEMPORARY)),
    ):
        there = _existing(path)
        _, uses = places.setdefault(there.stat().st_dev, (there, []))
        uses.append(use)
        if not os.access(there, os.W_OK):
            yield fail("disk", f"`{there}` ({use}) is not writable", "make it writable for you")
        elif os.statvfs(there).f_flag & os.ST_NOEXEC and path != attempts:
            yield warn(
                "disk",
                f"nothing on `{there}` ({use}) can be executed",
                "mount it without `noexec`: it holds interpreters of environments, or programs of "
                "torch.compile",
            )
    for path, uses in places.values():
        yield _space(path, ", ".join(uses))
    if sys.platform == "linux":
        yield _shared_memory()


def _space(path: Path, uses: str) -> Finding:
    space = os.statvfs(path)
    room, free = space.f_bavail * space.f_frsize, space.f_favail
    text = f"{size(room)} free for {uses} (`{path}`)"
    if room < _FULL:
        return fail("disk", f"only {text}", f"free some space: {_GC}")
    # Some file systems, such as btrfs, have no number of inodes.
    if space.f_files and free < _FULL_INODES:
        return fail(
            "disk", f"{text}, but only {free:,} inodes: no more files", f"free some space: {_GC}"
        )
    if room < _SCARCE:
        return warn("disk", f"only {text}", f"checkpoints may not fit: {_GC}")
    if space.f_files and free < _SCARCE_INODES:
        return warn("disk", f"{text}, but only {free:,} inodes", f"delete small files: {_GC}")
    return ok("disk", text)


def _shared_memory() -> Finding:
    larger = "start the container with `--shm-size=8g` or `--ipc=host`, or mount it larger"
    if not os.path.isdir(_MEMORY):
        return warn("disk", f"there is no `{_MEMORY}`: NCCL and data loaders use it", larger)
    space = os.statvfs(_MEMORY)
    room, total = space.f_bavail * space.f_frsize, space.f_blocks * space.f_frsize
    text = f"{size(room)} of {size(total)} free in `{_MEMORY}`, for NCCL and data loaders"
    if room < _SHARED_FULL:
        remove = f"delete the files of ended programs in `{_MEMORY}`"
        return fail("disk", f"only {text}", remove if total > _SHARED_SMALL else larger)
    if total <= _SHARED_SMALL:
        return warn("disk", f"only {text}", larger)
    return ok("disk", text)


def _existing(path: Path) -> Path:
    """The folder itself, or the nearest one above it that is there."""
    return next(item for item in (path, *path.parents) if os.path.isdir(item))


def check_content_stores(project: Project, states: tuple[State, ...]) -> Iterator[Finding]:
    """Read a sample of the objects, and check whether runs lack an object."""
    root = default_root()
    if not os.path.isdir(root):
        yield ok("store", f"there is no store yet (`{root}`)")
        return
    looked = {
        **_objects(project.store),
        **_objects(project.environments),
        **ObjectPacks(root / "packs").check(_CONTENTS),
    }
    damaged = [path for path, is_whole in looked.items() if not is_whole]
    for path in damaged:
        yield fail(
            "store",
            f"`{path}` does not match its checksum",
            "delete it, and check the disk; the next `sgpu apply` stores it again from your files",
        )
    yield from _missing(project, states)
    unreferenced = project.store.unreferenced()
    freed = f"; unused snapshots of code: {unreferenced}" if unreferenced else ""
    whole = len(looked) - len(damaged)
    are = "sampled object is" if whole == 1 else "sampled objects are"
    yield ok("store", f"`{root}`: {whole} {are} whole{freed}")


def _missing(project: Project, states: tuple[State, ...]) -> Iterator[Finding]:
    again = "the next `sgpu apply` of a changed run, or `--rerun`, stores it again"
    current = [
        resource.last
        for state in states
        for resource in state.resources.values()
        if resource.last is not None and not resource.gone
    ]
    for digest, users in _users((item.inputs.code_digest, item) for item in current).items():
        missing = project.store.lacking(digest)
        if missing is None:
            yield warn("store", f"the code of {users} is missing", again)
        elif missing:
            yield warn("store", f"the code of {users} lacks `{missing[0]}`", again)
    for digest, users in _users((item.inputs.environment_digest, item) for item in current).items():
        manifest = project.environments.manifest(digest)
        if manifest is None:
            yield warn("store", f"the environment of {users} is missing", again)
        elif files := project.environments.missing(manifest):
            yield warn("store", f"the environment of {users} lacks `{files[0].path}`", again)


def _users(pairs: Iterable[tuple[str | None, Attempt]]) -> dict[str, str]:
    """The attempts by what they use, in words."""
    by_digest: dict[str, list[str]] = {}
    for digest, attempt in pairs:
        if digest is not None:
            by_digest.setdefault(digest, []).append(str(attempt.ref))
    return {digest: few(names) for digest, names in by_digest.items()}


def _objects(store: ContentStore[Any]) -> dict[Path, bool]:
    """Whether a small object of each folder is whole."""
    looked: dict[str, tuple[Path, bool]] = {}
    for name in store.object_names():
        if name[:2] in looked:
            continue
        path = Path(store.object_path(name))
        with suppress(FileNotFoundError):
            if path.stat().st_size <= _LARGEST:
                content = hashlib.sha256(path.read_bytes()).hexdigest()
                looked[name[:2]] = path, content == name.partition(".")[0]
    return dict(looked.values())
