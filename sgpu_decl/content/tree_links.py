"""Verifies objects and puts them into a tree, in a worker of hydration.

The working folder is the tree that is being made, so all paths are relative.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import sys

from sgpu_decl.content.tree_files import (
    FIXED_NS,
    as_bytes,
    bytecode_path,
    is_of_bytecode,
    shebang,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    # Key, size, paths, paths of scripts, and when the object was hashed, in ns.
    Item = tuple[str, int, list[str], list[str], int]

_FICLONE = 0x40049409
_CHUNK = 1 << 18  # fits into a core's cache
_NO_LINKS = frozenset({errno.EXDEV, errno.EMLINK, errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS})
_REPLACED = errno.ENOENT  # the error of `link` while another process replaces the file
_SCRIPT = b"#!python"


class Linker:
    """Puts objects from `objects` into the working folder."""

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
        hash_time: int,
    ) -> bool:
        name = f"{key[:2]}/{key}"
        try:
            source = self._open(name)
        except FileNotFoundError:
            return False
        try:
            if not _unchanged(source, size, hash_time) and not self._verify(source, size, key[:64]):
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
        """Open an object without updating its access time, which would double the cost."""
        try:
            return os.open(name, self._flags, dir_fd=self._objects)
        except PermissionError:
            if not self._flags & os.O_NOATIME:
                raise
            self._flags &= ~os.O_NOATIME  # for owners alone
            return self._open(name)

    def _verify(self, source: int, size: int, digest: str) -> bool:
        if size < _CHUNK:
            read = os.readv(source, [self._buffer])
            return read == size and hashlib.sha256(self._buffer[:read]).hexdigest() == digest
        if os.fstat(source).st_size != size:
            return False
        sha = hashlib.sha256()
        while read := os.readv(source, [self._buffer]):
            sha.update(self._buffer[:read])
        return sha.hexdigest() == digest

    def _script(self, source: int, size: int) -> bytes:
        first, _, rest = os.pread(source, size, 0).partition(b"\n")
        return shebang(self._interpreter, first.removeprefix(_SCRIPT)) + rest


def place(name: str, folder: int, source: int, path: bytes) -> None:
    """Put a file into the tree: as a hard link, else a clone, else a copy.

    Args:
        name: the file, below `folder`.
        folder: a descriptor of the folder.
        source: a descriptor of the file itself, whose content the caller has verified.
        path: the place in the tree.
    """
    try:
        os.link(name, path, src_dir_fd=folder)
        return
    except OSError as error:
        if error.errno not in _NO_LINKS and error.errno != _REPLACED:
            raise
    facts = os.fstat(source)
    target = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.ioctl(target, _FICLONE, source)
        except OSError:
            at = 0
            while at < facts.st_size:
                at += os.sendfile(target, source, at, facts.st_size - at)
        _settle(target, facts.st_mode & 0o777)
    finally:
        os.close(target)


def write_file(path: bytes, content: bytes, mode: int) -> None:
    """Write a new file with the mode and time of a tree."""
    target = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with open(target, "wb") as file:
        file.write(content)
        file.flush()
        _settle(target, mode)


def write_link(path: bytes, target: bytes) -> None:
    """Make a symbolic link with the time of a tree."""
    os.symlink(target, path)
    os.utime(path, ns=(FIXED_NS, FIXED_NS), follow_symlinks=False)


def make_folders(folders: Iterable[str]) -> list[str]:
    """Make folders, outer ones first."""
    for folder in folders:
        os.mkdir(as_bytes(folder), 0o755)
    return []


def compile_files(paths: Iterable[str]) -> list[str]:
    """Compile modules of the tree's own. Python does not compare them with their sources
    (PEP 552)."""
    import importlib.util
    import marshal

    for path in paths:
        with open(path, "rb") as file:
            source = file.read()
        code = compile(source, path, "exec", dont_inherit=True)
        head = importlib.util.MAGIC_NUMBER + b"\1\0\0\0" + importlib.util.source_hash(source)
        target = bytecode_path(path, sys.implementation.cache_tag or "")
        write_file(as_bytes(target), head + marshal.dumps(code), 0o444)
    return []


def finish_folders(folders: Iterable[str]) -> list[str]:
    """Make finished folders read-only, but for those of bytecode, and set their time."""
    for folder in folders:
        path = as_bytes(folder) or b"."
        os.utime(path, ns=(FIXED_NS, FIXED_NS))
        os.chmod(path, 0o755 if is_of_bytecode(path) else 0o555)
    return []


def _unchanged(file: int, size: int, since: int) -> bool:
    """Whether a file has not changed since then."""
    facts = os.fstat(file)
    return facts.st_size == size and facts.st_ctime_ns <= since


def _settle(file: int, mode: int) -> None:
    """Give a file the mode and time of an object."""
    facts = os.fstat(file)
    if facts.st_mode & 0o7777 != mode:
        os.fchmod(file, mode)
    if facts.st_mtime_ns != FIXED_NS:
        os.utime(file, ns=(FIXED_NS, FIXED_NS))
