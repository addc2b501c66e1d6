"""Copies files: by reflink where the file system can share blocks, else by bytes.

Never by hard link: a run may write to its copy, and a user to the original.
"""

import contextlib
import os

from sgpu_decl.system_errors import path_in_errors

FICLONE = 0x40049409  # linux/fs.h
CHUNK = 1 << 20  # bytes


def copy_into(source: str, destination: str, mode: int) -> None:
    """Copy the content of `source` to the new file `destination`.

    Raises:
        OSError: the source is missing, the destination exists, or the disk is full.
    """
    import fcntl

    source_handle = os.open(source, os.O_RDONLY | os.O_CLOEXEC)
    try:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        handle = os.open(destination, flags, mode)
        try:
            try:
                fcntl.ioctl(handle, FICLONE, source_handle)
            except OSError:
                _copy_bytes(source_handle, handle, source, destination)
            with contextlib.suppress(PermissionError), path_in_errors(destination):
                os.fchmod(handle, mode)
        finally:
            os.close(handle)
    finally:
        os.close(source_handle)


def _copy_bytes(source_handle: int, handle: int, source: str, destination: str) -> None:
    while True:
        with path_in_errors(source):
            rest = memoryview(os.read(source_handle, CHUNK))
        if not rest:
            return
        with path_in_errors(destination):
            while rest:
                rest = rest[os.write(handle, rest) :]
