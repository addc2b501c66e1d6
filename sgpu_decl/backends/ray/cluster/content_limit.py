"""The limit of what a machine keeps by content: what was used last stays."""

from __future__ import annotations

import contextlib
import os
import time

MOST = 50_000_000_000
"""Bytes."""

NEEDED = 3600.0
"""Seconds for which a launch may need what was used."""

_SHARE = 0.2  # of the disk


def use(path: str) -> bool:
    """Note that a file is used; return whether it is there."""
    try:
        os.utime(path)
    except OSError:
        return False
    return True


def prune(folder: str, *, most: int = MOST, needed: float = NEEDED) -> None:
    """Delete the files below a folder that were not used for longest, until the rest is at most
    `most` bytes and a fifth of the disk. Hidden files stay, and what was used in the last `needed`
    seconds. Raises OSError."""
    disk = os.statvfs(folder)
    room = min(most, int(_SHARE * disk.f_blocks * disk.f_frsize))
    files = []
    for place, _, names in os.walk(folder):
        for name in names:
            if name.startswith("."):
                continue
            path = os.path.join(place, name)
            with contextlib.suppress(FileNotFoundError):
                status = os.stat(path)
                files.append((status.st_mtime, status.st_size, path))
    size = sum(item[1] for item in files)
    for used, length, path in sorted(files):
        if size <= room or time.time() - used < needed:
            break
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
        size -= length
