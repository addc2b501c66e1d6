"""The work of a worker on files: it verifies each object, and puts it into the tree.

Its current folder is the tree that is being made, so that all paths are relative.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os

from sgpu_decl.agent.environment.tree_files import FIXED_NS, as_bytes, shebang

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    # Key, size, paths, paths of scripts, and when the object was hashed, in ns.
    Item = tuple[str, int, list[str], list[str], int]

__all__ = ["Linker", "finish_folders", "make_folders", "place", "write_file", "write_link"]

_FICLONE = 0x40049409
_CHUNK = 1 << 18  # as much as stays in a core's cache
_NO_LINKS = frozenset({errno.EXDEV, errno.EMLINK, errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS})
_REPLACED = errno.ENOENT  # of `link`, if another process replaces the file meanwhile
_SCRIPT = b"#!python"


class Linker:
    """Puts objects of the folder `objects` into the current folder."""

    def __init__(self, objects: str, interpreter: str) -> None:
        self._objects = os.open(objects, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self._interpreter = interpreter
        self._flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NOATIME
        self._buffer = memoryview(bytearray(_CHUNK))

    def link(self, items: Iterable[Item]) -> list[str]:
        """Verify and link; return the keys of objects that are missing or damaged."""
        return [item[0] for item in items if not self._link(*item)]

    def _link(
        self,
        key: str,
        size: int,
        paths: Sequence[str],
        scripts: Sequence[str],
        hashed_ns: int,
    ) -> bool:
        name = f"{key[:2]}/{key}"
        try:
            source = self._open(name)
        except FileNotFoundError:
            return False
        try:
            if not _unchanged(source, size, hashed_ns) and not self._verify(source, size, key[:64]):
                return False
            mode = 0o555 if key.endswith(".x") else 0o444
            if paths:
                _settle(source, mode)
            for path in paths:
                place(name, self._objects, source, as_bytes(path))
            for path in scripts:
                write_file(as_bytes(path), self._script(source, size), 0o555)
        finally:
            os.close(source)
        return True

    def _open(self, name: str) -> int:
        """Open an object without a new access time, which would cost as much again."""
        try:
            return os.open(name, self._flags, dir_fd=self._objects)
        except PermissionError:
            if not self._flags & os.O_NOATIME:
                raise
            self._flags &= ~os.O_NOATIME  # only owners may use it
            return self._open(name)

    def _verify(self, source: int, size: int, digest: str) -> bool:
        if size < _CHUNK:
            count = os.readv(source, [self._buffer])
            return count == size and hashlib.sha256(self._buffer[:count]).hexdigest() == digest
        if os.fstat(source).st_size != size:
            return False
        hashed = hashlib.sha256()
        while count := os.readv(source, [self._buffer]):
            hashed.update(self._buffer[:count])
        return hashed.hexdigest() == digest

    def _script(self, source: int, size: int) -> bytes:
        first, _, rest = os.pread(source, size, 0).partition(b"\n")
        return shebang(self._interpreter, first.removeprefix(_SCRIPT)) + rest


def place(name: str, folder: int, source: int, path: bytes) -> None:
    """Put a file into the tree as a hard link, else a clone, else a copy.

    Args:
        name: the file, below `folder`.
        folder: a descriptor of the folder.
        source: a descriptor of the file, which the caller has verified.
        path: the place in the tree.
    """
    try:
        os.link(name, path, src_dir_fd=folder)
        return
    except OSError as error:
        if error.errno not in _NO_LINKS and error.errno != _REPLACED:
            raise
    status = os.fstat(source)
    target = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.ioctl(target, _FICLONE, source)
        except OSError:
            at = 0
            while at < status.st_size:
                at += os.sendfile(target, source, at, status.st_size - at)
        _settle(target, status.st_mode & 0o777)
    finally:
        os.close(target)


def write_file(path: bytes, content: bytes, mode: int) -> None:
    """Write a new file of a tree."""
    target = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with open(target, "wb") as file:
        file.write(content)
        file.flush()
        _settle(target, mode)


def write_link(path: bytes, target: bytes) -> None:
    """Make a symbolic link of a tree."""
    os.symlink(target, path)
    os.utime(path, ns=(FIXED_NS, FIXED_NS), follow_symlinks=False)


def make_folders(folders: Iterable[str]) -> list[str]:
    """Make folders; parents come first."""
    for folder in folders:
        os.mkdir(as_bytes(folder), 0o755)
    return []


def finish_folders(folders: Iterable[str]) -> list[str]:
    """Make folders read-only and set their time."""
    for folder in folders:
        path = as_bytes(folder) or b"."
        os.utime(path, ns=(FIXED_NS, FIXED_NS))
        os.chmod(path, 0o555)  # noqa: S103 - as readable as the files in it
    return []


def _unchanged(file: int, size: int, since: int) -> bool:
    """Whether a file has not changed since then."""
    status = os.fstat(file)
    return status.st_size == size and status.st_ctime_ns <= since


def _settle(file: int, mode: int) -> None:
    """Give a file the mode and the time of an object."""
    status = os.fstat(file)
    if status.st_mode & 0o7777 != mode:
        os.fchmod(file, mode)
    if status.st_mtime_ns != FIXED_NS:
        os.utime(file, ns=(FIXED_NS, FIXED_NS))
