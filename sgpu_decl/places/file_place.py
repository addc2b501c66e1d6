"""The one way in which files that others see are read and written.

Uploads, launch folders, leases, gc, results, proposals and the journals of shared states need no
more than a `FilePlace`. `tests/contracts/test_places.py` holds the promises below against every
one; `folder.FolderPlace` is the simplest. The calls follow those of the `Filer` of Databricks' own
client (https://github.com/databricks/cli/blob/main/libs/filer/filer.go).
"""

import io
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, BinaryIO, Protocol

from sgpu_decl.agent.attempt.attempt_files import parse_object
from sgpu_decl.errors import BackendError
from sgpu_decl.model.step_progress import Sent

__all__ = [
    "CountingReader",
    "FilePlace",
    "PlaceEntry",
    "PlaceMissing",
    "byte_count",
    "cut_short",
    "file_size",
    "folder_size",
    "get_object",
    "ignore_bytes",
    "save_stream",
    "upload_stream",
]

_CHUNK = 1 << 20
PROBE = "now-"
"""What names of files begin with that are made to learn the time."""

_COUNTED = 30.0  # seconds for which the time is counted on from one answer
# It runs on while the machine is suspended, and no user can set it.
_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


class PlaceMissing(BackendError):
    """What was asked for is not there."""

    code = "remote_missing"
    asked_wrong = True


@dataclass(frozen=True, slots=True, kw_only=True)
class PlaceEntry:
    """A file or a folder. `size` is in bytes, 0 of a folder. `modified` is in seconds of the epoch,
    by the clock of the place; 0 where it is not known, as of folders."""

    name: str
    folder: bool
    size: int = 0
    modified: float = 0.0


def ignore_bytes(_: int) -> None:
    """For transfers that nobody watches."""


class FilePlace(Protocol):
    """Paths are absolute, with `/` between names. Calls may come from several threads.

    Every call raises BackendError where the storage fails, does not answer or refuses: with the
    path, the reason and a next step. `retryable` is set where trying again may help, and what was
    asked may have happened.
    """

    part: int | None
    """Bytes up to which files can be read from here. Nodes write larger ones in parts of this
    size. None where files of any size can be read."""

    lag: float
    """Seconds for which `list` may lack what was just written, or show what was just deleted. 0
    where a list has all that was written before it. Calls that name a file never lag."""

    def now(self) -> float:
        """The time by the clock that dates files, in seconds of the epoch, give or take some
        seconds."""

    def stat(self, path: str) -> PlaceEntry | None:
        """What has that path; None where nothing has it, or this user may not see it."""

    def get(self, path: str) -> bytes:
        """Read a file. Raises PlaceMissing where it is not there."""

    def fetch(self, path: str, file: Path, received: Sent = ignore_bytes) -> None:
        """Read a file into one of this machine, which may be incomplete if this fails. Raises
        PlaceMissing where it is not there. `received` is called with the number of each further
        bytes."""

    def put(self, path: str, content: bytes | Path, sent: Sent = ignore_bytes) -> None:
        """Write a file, over the file that was there. Its folder exists already.

        Readers see the old file or the new one, whole, and never a part: also when this process
        is killed, or when several write the same path at once. The last of these wins. When this
        returns, the file is durable, and every call that names it sees it.

        Args:
            content: the bytes, or a file with them, which does not change meanwhile.
            sent: called with the number of bytes that were sent, if `content` is a file.
        """

    def create(self, path: str, content: bytes) -> bool:
        """As `put`, where nothing has that path; else false, and what is there stays. Of several
        that create a path at once, one is told true. Raises PlaceMissing where its folder is not
        there, which some places make instead."""

    def list(self, folder: str, *, after: str = "") -> tuple[PlaceEntry, ...]:
        """What a folder holds, by name; nothing if there is no such folder. Incomplete uploads may
        show as files with other names; gc deletes them. `after` leaves out the names up to it."""

    def make_folder(self, folder: str) -> None:
        """Make a folder and those above it. No-op for those that exist. Where folders are parts of
        names alone, as in a bucket, one is there once it holds a file."""

    def delete(self, path: str) -> None:
        """Delete a file, or a folder with all that it holds. No-op if it is not there, or if
        somebody else deletes it at the same time."""


class CountingReader(io.BufferedReader):
    """A file that calls `sent` after each read with its position, which falls if an interrupted
    upload starts again. An exception of `sent` ends the reading."""

    def __init__(self, path: Path, sent: Sent) -> None:
        super().__init__(io.FileIO(path))
        self._sent = sent

    def read(self, size: int | None = -1, /) -> bytes:
        data = super().read(size)
        self._sent(self.tell())
        return data


def byte_count(content: bytes | Path) -> int:
    """The size of what is to be written."""
    return len(content) if isinstance(content, bytes) else content.stat().st_size


@contextmanager
def upload_stream(content: bytes | Path, sent: Sent) -> Iterator[BinaryIO]:
    """What is to be written, as a stream; see `FilePlace.put`."""
    with (
        io.BytesIO(content) if isinstance(content, bytes) else CountingReader(content, sent)
    ) as stream:
        yield stream


def save_stream(stream: BinaryIO, file: Path, received: Sent) -> None:
    """Write a stream to a file of this machine; see `FilePlace.fetch`. Raises OSError."""
    file.touch(mode=0o600)
    with file.open("wb") as target:
        while chunk := stream.read(_CHUNK):
            target.write(chunk)
            received(len(chunk))


def cut_short(source: str) -> BackendError:
    """The error of a file that is not all that was written there. Asking again may help."""
    error = BackendError(
        f"reading `{source}`: it is not all that was written there",
        hint="try again: a shared folder may show a file before its content. If that does not "
        "help, somebody changed it there",
        code="remote_broken",
    )
    error.retryable = True
    return error


def get_object(files: FilePlace, path: str) -> dict[str, Any]:
    """Read a file with a JSON object. Raises PlaceMissing where it is not there, and BackendError
    where it is not whole: nobody takes it for one that says nothing."""
    read = parse_object(files.get(path))
    if read is None:
        raise cut_short(path)
    return read


def file_size(place: FilePlace, path: str) -> int | None:
    """Bytes of a file; None where nothing has that path. Raises BackendError, with the code
    `staging_taken` for a folder."""
    found = place.stat(path)
    if found is not None and found.folder:
        raise BackendError(
            f"`{path}` is no file but a folder",
            hint="move it away, or use another folder",
            code="staging_taken",
        )
    return None if found is None else found.size


def folder_size(place: FilePlace, folder: str) -> int:
    """Bytes of all files in a folder. Raises BackendError."""
    return sum(
        folder_size(place, f"{folder}/{item.name}") if item.folder else item.size
        for item in place.list(folder)
    )


def elapsed() -> float:
    """Seconds of a clock that nobody can set. Only differences mean something."""
    return time.clock_gettime(_CLOCK)


class PlaceClock:
    """Asked with a new file in `folder`, and counted on for a while from then; never more than has
    passed there. The file of a user who may not delete it stays."""

    def __init__(self, place: FilePlace, folder: str) -> None:
        self._place = place
        self._folder = folder
        self._learned: tuple[datetime, float] | None = None

    def now(self) -> datetime:
        """Raises BackendError."""
        if self._learned is not None:
            at, then = self._learned
            passed = elapsed() - then
            if passed < _COUNTED:
                return at + timedelta(seconds=passed)
        path = f"{self._folder}/{PROBE}{os.urandom(6).hex()}"
        self._place.create(path, b"\n")
        written = self._place.stat(path)
        with suppress(BackendError):
            self._place.delete(path)
        if written is None:
            error = BackendError(
                f"`{path}`, which was just written, is not shown", hint="try again"
            )
            error.retryable = True
            raise error
        return self.learn(written.modified)

    def learn(self, modified: float) -> datetime:
        """Take the time from a file that has just been written."""
        at = datetime.fromtimestamp(modified, UTC)
        self._learned = (at, elapsed())
        return at
