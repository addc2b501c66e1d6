"""The worker process of a capture: reads files, and copies them into the store in the same pass.

It is a process because Python's lock limits one process to one core, and it is small because the
process of a notebook has threads and must not be forked. It needs the standard library alone, and
ends when its standard input ends.
"""

import contextlib
import errno
import fcntl
import gc
import hashlib
import marshal
import os
import struct
import sys
import time
from typing import Any, BinaryIO, NamedTuple

from sgpu_decl.environments.captured.normal_form import bytecode, record, script

FIXED = 946_684_800 * 10**9  # 2000-01-01 in ns: the modification time of all objects
FICLONE = 0x40049409  # linux/fs.h
PIECE = 1 << 20  # bytes; larger files are read in pieces
TRIES = 4
PAUSE = 0.05  # seconds before a changing file is read again; doubled each time

FileStat = tuple[int, int, int, int]  # size, mtime and ctime in ns, inode


class Form:
    """The form in which a file is stored: its bytes, or a form that `normal_form` makes."""

    PLAIN = "f"
    SCRIPT = "s"
    RECORD = "r"
    BYTECODE = "p"


class Problem:
    """Why a file was not stored."""

    GONE = "gone"
    MOVING = "moving"  # it changes while it is read, or changed since the capture
    UNREADABLE = "unreadable"
    UNWRITABLE = "unwritable"  # the store cannot be written


class ReadJob(NamedTuple):
    """Read `path`. The copy gets `mode`. `expected` is a digest, or empty; without it the validity
    of bytecode is checked. `source` and `magic` are those of bytecode."""

    path: str
    how: str
    mode: int
    expected: str = ""
    source: str = ""
    magic: bytes = b""


class Reply(NamedTuple):
    """`digest` and `size` are those of the stored form, `facts` those of the file. Stale bytecode
    has no digest. `problem` is empty on success; `errno` is the system's."""

    digest: str
    size: int
    facts: FileStat
    problem: str = ""
    errno: int = 0


def send(stream: BinaryIO, values: "list[Any]") -> None:
    """Write one message."""
    data = marshal.dumps([tuple(value) for value in values])
    stream.write(struct.pack("<I", len(data)) + data)
    stream.flush()


def receive(stream: BinaryIO) -> "list[Any] | None":
    """Read one message; `None` at the end, or where the message is cut off."""
    head = stream.read(4)
    if len(head) < 4:
        return None
    (length,) = struct.unpack("<I", head)
    data = stream.read(length)
    return list(marshal.loads(data)) if len(data) == length else None  # noqa: S302 (ours)


class _Moving(Exception):
    """The file changed while it was read, or has another digest than expected."""


class _Unwritable(Exception):
    """The copy cannot be written. The cause has the error."""


class _Worker:
    """`incoming` is the prefix of its temporary files. Without `objects` nothing is copied."""

    def __init__(self, objects: str, incoming: str) -> None:
        self._objects = objects
        self._incoming = incoming
        self._keys = set(_object_keys(objects)) if objects else set()
        self._count = 0
        self._clones = True
        self._source: tuple[str, bytes, FileStat] = ("", b"", (0, 0, 0, 0))

    def do(self, job: ReadJob) -> Reply:
        for attempt in range(TRIES):
            try:
                return self._take(job)
            except _Moving:
                time.sleep(PAUSE * 2**attempt)
            except (FileNotFoundError, NotADirectoryError):
                return _problem(Problem.GONE)
            except OSError as error:
                return _problem(Problem.UNREADABLE, error)
            except _Unwritable as error:
                return _problem(Problem.UNWRITABLE, error.__cause__)
        return _problem(Problem.MOVING)

    def _take(self, job: ReadJob) -> Reply:
        handle = os.open(job.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            facts = _facts(handle)
            if facts[0] > PIECE and job.how == Form.PLAIN:
                return self._take_large(job, handle, facts)
            data = _whole(handle, facts)
        finally:
            os.close(handle)
        if job.how == Form.PLAIN:
            self._source = (job.path, data, facts)
        elif job.how == Form.SCRIPT:
            data = script(data)
        elif job.how == Form.RECORD:
            data = record(data)
        else:
            source, source_facts = self._source_of(job)
            source_stamp = None if job.expected else (source_facts[0], source_facts[1] // 10**9)
            normal = bytecode(data, job.magic, source, source_stamp)
            if normal is None:
                return Reply("", 0, facts)
            data = normal
        digest = hashlib.sha256(data).hexdigest()
        if job.expected and digest != job.expected:
            raise _Moving
        if self._lacks(digest, job.mode):
            self._write(data, digest, job.mode)
        return Reply(digest, len(data), facts)

    def _source_of(self, job: ReadJob) -> "tuple[bytes, FileStat]":
        """The source of bytecode: mostly the file that was read just before."""
        if self._source[0] != job.source:
            handle = os.open(job.source, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
            try:
                facts = _facts(handle)
                self._source = (job.source, _whole(handle, facts), facts)
            finally:
                os.close(handle)
        return self._source[1:]

    def _take_large(self, job: ReadJob, handle: int, facts: FileStat) -> Reply:
        if not self._objects:
            digest = _hashed(handle, facts[0], None)
            if _facts(handle) != facts:
                raise _Moving
            return Reply(digest, facts[0], facts)
        temporary, copy = self._open(job.mode)
        try:
            if self._clone(handle, copy):
                digest = _hashed(copy, facts[0], None)
            else:
                digest = _hashed(handle, facts[0], copy)
            if _facts(handle) != facts or (job.expected and digest != job.expected):
                raise _Moving
            if self._lacks(digest, job.mode):
                self._register(temporary, copy, digest, job.mode)
                temporary = ""
        finally:
            os.close(copy)
            _unlink(temporary)
        return Reply(digest, facts[0], facts)

    def _write(self, data: bytes, digest: str, mode: int) -> None:
        temporary, copy = self._open(mode)
        try:
            _write_all(copy, data)
            self._register(temporary, copy, digest, mode)
            temporary = ""
        finally:
            os.close(copy)
            _unlink(temporary)

    def _lacks(self, digest: str, mode: int) -> bool:
        return bool(self._objects) and _key(digest, mode) not in self._keys

    def _open(self, mode: int) -> "tuple[str, int]":
        self._count += 1
        path = f"{self._incoming}.{self._count}"
        try:
            return path, os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
        except OSError as error:
            raise _Unwritable from error

    def _clone(self, handle: int, copy: int) -> bool:
        """Share the blocks, where the file system can."""
        if self._clones:
            try:
                fcntl.ioctl(copy, FICLONE, handle)
            except OSError:
                self._clones = False
        return self._clones

    def _register(self, temporary: str, copy: int, digest: str, mode: int) -> None:
        key = _key(digest, mode)
        try:
            os.utime(copy, ns=(FIXED, FIXED))
            os.rename(temporary, f"{self._objects}/{key[:2]}/{key}")
        except OSError as error:
            raise _Unwritable from error
        self._keys.add(key)


def _facts(handle: int) -> FileStat:
    stat = os.fstat(handle)
    return stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns, stat.st_ino


def _whole(handle: int, facts: FileStat) -> bytes:
    data = os.read(handle, facts[0] + 1)
    while len(data) < facts[0] and (more := os.read(handle, facts[0] - len(data))):
        data += more
    if len(data) != facts[0] or _facts(handle) != facts:
        raise _Moving
    return data


def _hashed(handle: int, size: int, copy: "int | None") -> str:
    """Read to the end, write to `copy` if given, and return the digest."""
    sha, done = hashlib.sha256(), 0
    while done <= size and (piece := os.read(handle, PIECE)):
        sha.update(piece)
        done += len(piece)
        if copy is not None:
            _write_all(copy, piece)
    if done != size:
        raise _Moving
    return sha.hexdigest()


def _write_all(copy: int, data: bytes) -> None:
    try:
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(copy, rest) :]
    except OSError as error:
        raise _Unwritable from error


def _unlink(temporary: str) -> None:
    if temporary:
        with contextlib.suppress(OSError):
            os.unlink(temporary)


def _object_keys(objects: str) -> "list[str]":
    return [name for folder in os.listdir(objects) for name in os.listdir(f"{objects}/{folder}")]


def _key(digest: str, mode: int) -> str:
    return f"{digest}.x" if mode & 0o100 else digest


def _problem(which: str, error: "BaseException | None" = None) -> Reply:
    number = error.errno if isinstance(error, OSError) and error.errno else errno.EIO
    return Reply("", 0, (0, 0, 0, 0), which, number)


def main(objects: str, incoming: str) -> None:
    """Do jobs until there are no more."""
    gc.disable()  # nothing here makes cycles
    os.umask(0)  # the modes of objects are exact
    worker = _Worker(objects, incoming)
    try:
        while (jobs := receive(sys.stdin.buffer)) is not None:
            send(sys.stdout.buffer, [worker.do(ReadJob(*job)) for job in jobs])
    except BrokenPipeError:  # the process that started it has ended
        os._exit(1)
