"""Files that are written whole or not at all, and locks of files."""

import contextlib
import fcntl
import os
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

from sgpu_decl.agent.system.safe_files import private_folder

LEFT_AFTER = timedelta(hours=1)
"""The age from which on a file that is needed for a moment is that of a process that was killed."""

_DRAFT = ".new-"
_LOOK = 0.1  # seconds between two tries to lock


def write_atomic(path: Path, data: bytes, *, durable: bool = True, mode: int = 0o600) -> None:
    """Replace a file by rename, so that a reader sees the old bytes or the new ones.

    Args:
        durable: it survives a power cut; a cache need not.
        mode: the file's permissions.

    Raises:
        OSError: it cannot be written; the old content stays.
    """
    temporary = path.with_name(f"{_DRAFT}{os.urandom(6).hex()}")
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with open(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            if mode != 0o600:
                os.fchmod(descriptor, mode)
            if durable:
                os.fsync(descriptor)
        os.rename(temporary, path)
    except BaseException as error:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        if isinstance(error, OSError):
            error.filename = os.fspath(path)  # users do not know the temporary file
        raise


def write_cache(path: Path, data: bytes) -> None:
    """Replace a file of a cache. Where it cannot be written, that costs speed only."""
    with contextlib.suppress(OSError):
        private_folder(path.parent)
        write_atomic(path, data, durable=False)


def delete_left(folder: Path) -> None:
    """Delete the files that `write_atomic` left in a folder where it was killed."""
    oldest = (datetime.now(UTC) - LEFT_AFTER).timestamp()
    with contextlib.suppress(OSError):
        for left in folder.glob(f"{_DRAFT}*"):
            with contextlib.suppress(OSError):  # another process deleted it, or it is a folder
                if left.lstat().st_mtime < oldest:
                    left.unlink()


def sync_folder(folder: Path | str) -> None:
    """Let the names in a folder survive a power cut. Raises OSError."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def wait_for_lock(descriptor: int, how: int, waited: Callable[[int], object]) -> None:
    """Lock an open file as flock(2) does.

    Args:
        how: `fcntl.LOCK_SH` or `fcntl.LOCK_EX`.
        waited: called with the seconds since the first try, again and again while others hold it.
    """
    began = time.monotonic()
    while True:
        try:
            return fcntl.flock(descriptor, how | fcntl.LOCK_NB)
        except BlockingIOError:
            waited(int(time.monotonic() - began))
            time.sleep(_LOOK)
