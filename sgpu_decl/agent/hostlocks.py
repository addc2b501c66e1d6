"""Where everything that one user runs on a host locks what it shares: ports, GPU slots."""

from __future__ import annotations

import os
import stat

__all__ = ["host_lock_folder"]

_SHARED = "/tmp"  # noqa: S108  what is made there is checked to be ours


def host_lock_folder(kind: str) -> str:
    """A folder for locks that all sgpu runs of this host and user share (ports, GPU slots).

    It is the same from every session, and outlives them as runs do: so XDG_RUNTIME_DIR, which goes
    with the last log-out, and TMPDIR say nothing here. It is ours and private; one of that name
    that belongs to another user is never used.

    Raises:
        OSError: there is no such folder to be had.
    """
    home = os.path.join(_SHARED, f"sgpu-{os.getuid()}")
    _made(home)
    owner = os.lstat(home)
    if not stat.S_ISDIR(owner.st_mode) or owner.st_uid != os.getuid() or owner.st_mode & 0o022:
        raise PermissionError(f"{home} is not private to this user")
    folder = os.path.join(home, kind)
    _made(folder)
    return folder


def _made(folder: str) -> None:
    try:
        os.mkdir(folder, 0o700)
    except FileExistsError:
        if not os.path.isdir(folder):
            raise
