"""Files that are written whole or not at all."""

import contextlib
import os
from pathlib import Path

from sgpu_decl.agent.private_folder import private_folder

__all__ = ["sync_folder", "write_atomic", "write_cache"]


def write_atomic(path: Path, data: bytes, *, durable: bool = True, mode: int = 0o600) -> None:
    """Replace a file by rename, so that a reader sees the old bytes or the new ones.

    Args:
        durable: it survives a power cut; a cache need not.
        mode: the file's permissions.

    Raises:
        OSError: it cannot be written; the old content stays.
    """
    temporary = path.with_name(f".new-{os.urandom(6).hex()}")
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


def sync_folder(folder: Path | str) -> None:
    """Let the names in a folder survive a power cut. Raises OSError."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
