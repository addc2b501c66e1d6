"""Copies files: by reflink where the file system can share blocks, else by bytes.

Never by hard link: a run may write to its copy, and a user to the original.
"""

import fcntl
import hashlib
import os

from sgpu_decl.model.step_progress import Sent
from sgpu_decl.system_errors import path_in_errors

FICLONE = 0x40049409  # linux/fs.h
SMALL = 64 * 1024  # bytes; a smaller file is copied by bytes: it is read for its digest anyway
CHUNK = 1 << 20  # bytes
_OLD = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK
_NEW = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC


def copy_into(source: str, destination: str, mode: int, copied: Sent) -> str:
    """Copy the content of `source` to the new file `destination`; return the SHA-256 of the copied
    content in hex. `copied` is told how many bytes have been copied, after each part.

    Raises:
        OSError: the source is missing, the destination exists, or the disk is full.
    """
    source_handle = os.open(source, _OLD)
    try:
        handle = os.open(destination, _NEW, mode)
        try:
            return _copy(source_handle, handle, source, destination, copied)
        finally:
            os.close(handle)
    finally:
        os.close(source_handle)


def read_small(path: str, size: int) -> bytes:
    """Return the content of a file of `size` bytes, less than `SMALL`. If the file has another
    size now, that may be a part.

    Raises:
        OSError: it cannot be read.
    """
    handle = os.open(path, _OLD)
    try:
        content = os.read(handle, SMALL)
        while len(content) < size and (piece := os.read(handle, SMALL)):
            content += piece
        return content
    finally:
        os.close(handle)


def write_new(path: str, content: bytes, mode: int, folder: int) -> None:
    """Write a new file. `folder` is a descriptor of the folder that it lies in: for ten thousand
    files, to look their paths up would take as long as to hash them.

    Raises:
        OSError: the file exists, or the disk is full.
    """
    try:
        handle = os.open(path.rpartition("/")[2], _NEW, mode, dir_fd=folder)
        try:
            _write(handle, content)
        finally:
            os.close(handle)
    except OSError as error:
        error.filename = path
        raise


def _copy(source_handle: int, handle: int, source: str, destination: str, copied: Sent) -> str:
    sha, done = hashlib.sha256(), 0
    with path_in_errors(source):
        piece = os.read(source_handle, SMALL)
    if len(piece) == SMALL and _clone(source_handle, handle):
        with path_in_errors(destination):
            while piece := os.read(handle, CHUNK):
                sha.update(piece)
                done += len(piece)
                copied(done)
        return sha.hexdigest()
    while piece:
        sha.update(piece)
        with path_in_errors(destination):
            _write(handle, piece)
        done += len(piece)
        copied(done)
        with path_in_errors(source):
            piece = os.read(source_handle, CHUNK)
    return sha.hexdigest()


def _write(handle: int, content: bytes) -> None:
    done = os.write(handle, content)
    while done < len(content):  # a signal, or a disk that is nearly full
        done += os.write(handle, memoryview(content)[done:])


def _clone(source_handle: int, handle: int) -> bool:
    """Share the blocks of a whole file, where the file system can."""
    try:
        fcntl.ioctl(handle, FICLONE, source_handle)
    except OSError:
        return False
    return True
