"""Where locks lie that all runs on this host share."""

import os
import stat
from pathlib import Path

__all__ = ["host_lock_folder"]

_SHARED = Path("/tmp")  # noqa: S108  what is made there is checked to be ours


def host_lock_folder(kind: str) -> Path:
    """A folder for locks that all sgpu runs of this host and user share (ports, GPU slots).

    It is the same from every session, and outlives them as runs do: so XDG_RUNTIME_DIR, which goes
    with the last log-out, and TMPDIR say nothing here. It is ours and private; one of that name
    that belongs to another user is never used.

    Raises:
        OSError: there is no such folder to be had.
    """
    home = _SHARED / f"sgpu-{os.getuid()}"
    home.mkdir(mode=0o700, exist_ok=True)
    owner = home.lstat()
    if not stat.S_ISDIR(owner.st_mode) or owner.st_uid != os.getuid() or owner.st_mode & 0o022:
        raise PermissionError(f"{home} is not private to this user")
    folder = home / kind
    folder.mkdir(mode=0o700, exist_ok=True)
    return folder
