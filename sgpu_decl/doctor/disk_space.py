"""Free space and inodes where runs write."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

from sgpu_decl.diagnostics.amounts import size
from sgpu_decl.model.doctor_finding import Finding, fail, ok, warn

_CHECK = "disk"
_MEMORY = "/dev/shm"  # noqa: S108  looked at, not written to
_TEMPORARY = "/tmp"  # noqa: S108
_FULL, _SCARCE = 100 << 20, 2 << 30
_FULL_INODES, _SCARCE_INODES = 1_000, 20_000
_SHARED_FULL, _SHARED_SMALL = 16 << 20, 64 << 20
_GC = "`sgpu gc` deletes the files of old attempts, `sgpu gc --keep-last 1` those of more"


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
            yield fail(_CHECK, f"`{there}` ({use}) is not writable", "make it writable for you")
        elif os.statvfs(there).f_flag & os.ST_NOEXEC and path != attempts:
            yield warn(
                _CHECK,
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
        return fail(_CHECK, f"only {text}", f"free some space: {_GC}")
    # Some file systems, such as btrfs, have no number of inodes.
    if space.f_files and free < _FULL_INODES:
        return fail(
            _CHECK, f"{text}, but only {free:,} inodes: no more files", f"free some space: {_GC}"
        )
    if room < _SCARCE:
        return warn(_CHECK, f"only {text}", f"checkpoints may not fit: {_GC}")
    if space.f_files and free < _SCARCE_INODES:
        return warn(_CHECK, f"{text}, but only {free:,} inodes", f"delete small files: {_GC}")
    return ok(_CHECK, text)


def _shared_memory() -> Finding:
    larger = "start the container with `--shm-size=8g` or `--ipc=host`, or mount it larger"
    if not os.path.isdir(_MEMORY):
        return warn(_CHECK, f"there is no `{_MEMORY}`: NCCL and data loaders use it", larger)
    space = os.statvfs(_MEMORY)
    room, total = space.f_bavail * space.f_frsize, space.f_blocks * space.f_frsize
    text = f"{size(room)} of {size(total)} free in `{_MEMORY}`, for NCCL and data loaders"
    if room < _SHARED_FULL:
        remove = f"delete the files of ended programs in `{_MEMORY}`"
        return fail(_CHECK, f"only {text}", remove if total > _SHARED_SMALL else larger)
    if total <= _SHARED_SMALL:
        return warn(_CHECK, f"only {text}", larger)
    return ok(_CHECK, text)


def _existing(path: Path) -> Path:
    """The folder itself, or the nearest one above it that is there."""
    return next(item for item in (path, *path.parents) if os.path.isdir(item))
