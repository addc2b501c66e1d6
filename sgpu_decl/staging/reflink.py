"""Copies of files: a reflink where the file system can share blocks, else the bytes.

Never a hard link: a run may write to its own copy, and a user to the original.
"""

import contextlib
import os

from sgpu_decl.system_errors import path_in_errors

__all__ = ["copy_into"]

FICLONE = 0x40049409  # linux/fs.h
CHUNK = 1 << 20  # bytes


def copy_into(source: str, destination: str, mode: int) -> None:
    """Copy the content of `source` to the new file `destination`.

    Raises:
        OSError: the source is missing, the destination exists, or the disk is full.
    """
    import fcntl

    read = os.open(source, os.O_RDONLY | os.O_CLOEXEC)
    try:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        written = os.open(destination, flags, mode)
        try:
            try:
                fcntl.ioctl(written, FICLONE, read)
            except OSError:
                _copy_bytes(read, written, source, destination)
            with contextlib.suppress(PermissionError), path_in_errors(destination):
                os.fchmod(written, mode)
        finally:
            os.close(written)
    finally:
        os.close(read)


def _copy_bytes(read: int, written: int, source: str, destination: str) -> None:
    while True:
        with path_in_errors(source):
            rest = memoryview(os.read(read, CHUNK))
        if not rest:
            return
        with path_in_errors(destination):
            while rest:
                rest = rest[os.write(written, rest) :]
