"""The folder of the locks that all runs of one user on a host share: of ports, GPUs and attempts.

It lies in `/tmp`, where every session of the user finds it, because runs outlive sessions.
XDG_RUNTIME_DIR, which the last log-out deletes, is used only if another user has taken the name of
the folder; the plan then says so.
"""

from __future__ import annotations

import os
import stat

_SHARED = "/tmp"  # noqa: S108  what is made there is checked to be ours
_RUNTIME = "/run/user"


def host_lock_folder(kind: str) -> str:
    """Return the folder of one kind of locks; make it if it is missing.

    Raises:
        OSError: it cannot be made.
    """
    home = host_lock_home()
    _make(home)
    folder = os.path.join(home, kind)
    _make(folder)
    return folder


def host_lock_home() -> str:
    """Return the folder of those folders, which may not exist yet. It is private to this user.

    Raises:
        PermissionError: there is no private folder.
    """
    shared = _shared()
    if _usable(shared):
        return shared
    for runtime in (f"{_RUNTIME}/{os.getuid()}", os.environ.get("XDG_RUNTIME_DIR", "")):
        own = os.path.join(runtime, "sgpu")
        if os.path.isabs(runtime) and os.path.isdir(runtime) and _usable(runtime) and _usable(own):
            return own
    raise PermissionError(
        f"`{shared}` is not private to this user, who has no runtime folder either: remove it, "
        "or set XDG_RUNTIME_DIR to a folder that is yours alone"
    )


def shared_gpu_locks() -> str:
    """Return the folder of the locks of GPUs that all users share; it may be missing."""
    return os.path.join(_SHARED, "sgpu-gpus")


def taken_folder() -> str | None:
    """Return the shared folder if another user has taken its name; None if it is ours."""
    shared = _shared()
    return None if _usable(shared) else shared


def _shared() -> str:
    return os.path.join(_SHARED, f"sgpu-{os.getuid()}")


def _usable(folder: str) -> bool:
    """Whether a folder is ours and writable for nobody else, or is not there yet."""
    try:
        status = os.lstat(folder)
    except FileNotFoundError:
        return True
    private = status.st_uid == os.getuid() and not status.st_mode & 0o022
    return private and stat.S_ISDIR(status.st_mode)


def _make(folder: str) -> None:
    try:
        os.mkdir(folder, 0o700)
    except FileExistsError:
        if not os.path.isdir(folder):
            raise
