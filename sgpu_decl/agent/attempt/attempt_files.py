"""The files of an attempt folder: written so that a crash at any point leaves them readable.

spec.json      what to run; written before the launch, never changed
identity.json  who supervises: machine, boot, pid and start time
status.json    the latest snapshot, replaced by rename
events.log     append-only, `crc32hex json` per line; a torn last line is ignored
mlflow.json    the MLflow run, or why there is none; written by the tracker
tracker.json   what the tracker waits for
notices.json   who was told of the end, and what became of that
mlflow-open/   a file of each MLflow run that is still open; on this machine it lies in `.sgpu`
outcome.json   the verdict, linked into place: the first writer wins
reserve        disk space that becomes the outcome, so that a full disk cannot prevent it
"""

from __future__ import annotations

import errno
import os
import sys
import time
from binascii import crc32

from sgpu_decl.agent.system.fast_stdlib import dumps, loads
from sgpu_decl.agent.system.safe_files import regular_opener

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

SPEC = "spec.json"
IDENTITY = "identity.json"
STATUS = "status.json"
EVENTS = "events.log"
OUTCOME = "outcome.json"
TRACKED = "mlflow.json"
TRACKER = "tracker.json"
OPEN_RUNS = "mlflow-open"
CANCEL = "cancel"
LAUNCH_LOCK = "launch.lock"
SUPERVISOR_LOCK = "supervisor.lock"
GUARDIAN_LOCK = "guardian.lock"

_RESERVE = "reserve"
_RESERVE_BYTES = 256 << 10  # a traceback of 64 KiB, and 1,000 ranks


def stamp(seconds: float | None = None) -> str:
    """Return a time as RFC 3339 in UTC with milliseconds; the present one by default."""
    moment = time.time() if seconds is None else seconds
    text = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(moment))
    return f"{text}.{int(moment % 1 * 1000):03d}Z"


def say(text: str) -> None:
    """Write a line to stderr, which is `agent.log` or a terminal. An error is ignored."""
    try:
        sys.stderr.write(f"sgpu: {text}\n")
    except OSError:
        return


def read_json(folder: str, name: str, *, limit: int = 16 << 20) -> dict[str, Any] | None:
    """Return the JSON object in a file; None if the file is missing, too large, or holds none."""
    try:
        path = os.path.join(folder, name)
        with open(path, "rb", buffering=0, opener=regular_opener) as file:
            data = file.read(limit + 1)
    except OSError:
        return None
    return parse_object(data) if len(data) <= limit else None


def parse_object(data: bytes) -> dict[str, Any] | None:
    """Return the JSON object that bytes hold; None if they hold anything else."""
    try:
        value = loads(data)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def numbers_in(folder: str | os.PathLike[str]) -> list[int]:
    """The numbers that name something in a folder, in order: attempts, ranks, or their restarts.
    Empty if it cannot be listed."""
    try:
        return sorted(int(name) for name in os.listdir(folder) if name.isdigit())
    except OSError:
        return []


def encode(value: object) -> bytes:
    """Return a value as compact JSON in UTF-8; lone surrogates become question marks."""
    return dumps(value).encode("utf-8", "replace")


def write_atomic(folder: str, name: str, data: bytes, *, durable: bool = False) -> None:
    """Replace a file by rename, so that a reader sees the old bytes or the new ones.

    Raises:
        OSError: the disk is full, or the folder is gone.
    """
    temporary = _temporary(folder, name, data, durable=durable)
    try:
        os.rename(temporary, os.path.join(folder, name))
    except OSError:
        os.unlink(temporary)
        raise
    if durable:
        sync_folder(folder)


def reserve_space(folder: str) -> None:
    """Reserve the disk space that `write_once` will use.

    Raises:
        OSError: the disk is full.
    """
    path = os.path.join(folder, _RESERVE)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            os.posix_fallocate(descriptor, 0, _RESERVE_BYTES)
        except OSError as error:
            if error.errno == errno.ENOSPC:
                raise
            # This kernel or file system reserves no space without writing.
            _write_all(descriptor, bytes(_RESERVE_BYTES))
    finally:
        os.close(descriptor)


def write_once(folder: str, name: str, data: bytes) -> bool:
    """Link a file into place; return whether this call did. The first writer wins for good.

    The bytes go into the space that `reserve_space` took.

    Raises:
        OSError: the disk is full and no space was reserved, or the folder is gone.
    """
    reserve = os.path.join(folder, _RESERVE)
    if os.path.exists(reserve):
        os.rename(reserve, _temporary_path(folder, name))
    temporary = _temporary(folder, name, data, durable=True)
    try:
        os.link(temporary, os.path.join(folder, name))
    except FileExistsError:
        return False
    finally:
        os.unlink(temporary)
    sync_folder(folder)
    return True


def _temporary(folder: str, name: str, data: bytes, *, durable: bool) -> str:
    temporary = _temporary_path(folder, name)
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        _write_all(descriptor, data)
        os.ftruncate(descriptor, len(data))
        if durable:
            os.fsync(descriptor)
    except OSError as error:
        error.filename = temporary  # the calls above know the descriptor alone
        os.unlink(temporary)
        raise
    finally:
        os.close(descriptor)
    return temporary


def _write_all(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def _temporary_path(folder: str, name: str) -> str:
    return os.path.join(folder, f".{name}.{os.getpid()}.tmp")


def sync_folder(folder: str) -> None:
    """Make the names in a folder survive a power cut."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    except OSError as error:
        error.filename = folder
        raise
    finally:
        os.close(descriptor)


class EventLog:
    """Appends events. If the disk is full, events are dropped and counted, and the run goes on."""

    def __init__(self, folder: str) -> None:
        self._descriptor = os.open(
            os.path.join(folder, EVENTS),
            os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC,
            0o600,
        )
        self._sequence = 0
        self._torn = False
        self._unsynced = False
        self.dropped = 0

    def append(self, event: str, /, *, durable: bool = False, **data: object) -> None:
        """Write one event with its wall-clock and monotonic time.

        A `durable` event survives a power cut after the next `sync`.
        """
        self._unsynced = self._unsynced or durable
        self._sequence += 1
        body = encode(
            {
                "seq": self._sequence,
                "time": stamp(),
                "mono_ns": time.monotonic_ns(),
                "event": event,
                **data,
            }
        )
        line = b"%08x %s\n" % (crc32(body), body)
        if self._torn:
            line = b"\n" + line  # ends the torn line
        try:
            self._torn = os.write(self._descriptor, line) != len(line)
        except OSError:
            self.dropped += 1
            return
        self.dropped += self._torn

    def sync(self) -> None:
        """Wait until the disk has all durable events."""
        if not self._unsynced:
            return
        self._unsynced = False
        try:
            os.fdatasync(self._descriptor)
        except OSError:
            self.dropped += 1
