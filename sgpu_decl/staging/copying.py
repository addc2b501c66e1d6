"""Copies of files: a reflink where the file system can share blocks, else the bytes.

Never a hard link: a run may write to its own copy, and a user to the original.
"""

import contextlib
import os

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
                _copy_bytes(read, written)
            with contextlib.suppress(PermissionError):
                os.fchmod(written, mode)
        finally:
            os.close(written)
    finally:
        os.close(read)


def _copy_bytes(read: int, written: int) -> None:
    while chunk := os.read(read, CHUNK):
        rest = memoryview(chunk)
        while rest:
            rest = rest[os.write(written, rest) :]
