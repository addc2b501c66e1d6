"""flock as the one sign of life: the kernel frees it when a process dies, in whatever way.

Owners hold an exclusive lock; readers take a shared one for an instant. An owner creates its lock
file under another name, locks it, and then links it into place, so no reader can be in its way.
"""

from __future__ import annotations

import fcntl
import os


def open_lock(path: str, mode: int = 0o600) -> int:
    """Open a lock file; make it if it is missing. It is never removed.

    Raises:
        OSError: the file cannot be opened.
    """
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, mode)


def try_lock(descriptor: int) -> bool:
    """Take the exclusive lock if it is free; return whether it is ours now."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def is_at(descriptor: int, path: str) -> bool:
    """Whether an open file is the one at that path: somebody may have deleted it meanwhile."""
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat(path))
    except FileNotFoundError:
        return False


def open_deleted(path: str) -> int | None:
    """Open a lock file that was at this path, was deleted, and is held by a process of this user;
    return its descriptor, None if there is none."""
    name = f"{path} (deleted)"
    for process in os.listdir("/proc"):
        folder = f"/proc/{process}/fd"
        if not process.isdigit() or int(process) == os.getpid():
            continue
        try:
            for number in os.listdir(folder):
                if os.readlink(f"{folder}/{number}") != name:
                    continue
                descriptor = os.open(f"{folder}/{number}", os.O_RDWR | os.O_CLOEXEC)
                if not try_lock(descriptor):
                    return descriptor
                os.close(descriptor)
        except OSError:
            continue  # it has ended, or is another user's
    return None


def create_held(path: str, *, replace: bool = False) -> int:
    """Make a lock file that is locked from its first moment; return its descriptor.

    Raises:
        FileExistsError: it exists already, and `replace` is not set.
        OSError: the folder is gone, or the disk is full.
    """
    temporary = f"{path}.{os.getpid()}.tmp"
    descriptor = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        if replace:
            os.rename(temporary, path)
            return descriptor
        os.link(temporary, path)
    except OSError:
        os.close(descriptor)
        os.unlink(temporary)
        raise
    os.unlink(temporary)
    return descriptor


def held(path: str) -> bool | None:
    """Whether a living process holds the lock; None if the file is missing.

    Raises:
        OSError: this user may not open the file, or descriptors have run out.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def wait_until_free(path: str) -> None:
    """Block until nobody holds the lock; return at once if the file is missing.

    Raises:
        OSError: it cannot be opened.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH)
    finally:
        os.close(descriptor)
