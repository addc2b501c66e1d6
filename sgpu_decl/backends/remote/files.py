"""The interface to files that this machine and the nodes of a backend both see.

A backend whose ranks run elsewhere implements `RemoteFiles`. Uploads by content, launch folders,
leases, gc and results need no more than that. `tests/contracts/test_remote_files.py` holds the
promises below against every implementation; `folder_files.FolderFiles` is the simplest.
"""

import io
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Protocol

from sgpu_decl.agent.attempt_files import parse_object
from sgpu_decl.errors import BackendError
from sgpu_decl.model.step_progress import Sent

__all__ = [
    "CountingReader",
    "RemoteEntry",
    "RemoteFiles",
    "RemoteMissing",
    "byte_count",
    "cut_short",
    "folder_size",
    "get_object",
    "ignore_bytes",
    "save_stream",
    "upload_stream",
]

_CHUNK = 1 << 20


class RemoteMissing(BackendError):
    """What was asked for is not there."""

    code = "remote_missing"
    asked_wrong = True


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteEntry:
    """A file or a folder in a folder. `size` is in bytes, 0 of a folder. `modified` is in seconds
    of the epoch, by the clock of `RemoteFiles.now`; 0 where it is not known, as of folders."""

    name: str
    folder: bool
    size: int = 0
    modified: float = 0.0


def ignore_bytes(_: int) -> None:
    """For transfers that nobody watches."""


class RemoteFiles(Protocol):
    """Paths are absolute, with `/` between names. Calls may come from several threads.

    Every call raises BackendError where the storage fails, does not answer or refuses: with the
    path, the reason and a next step. `retryable` is set where trying again may help.
    """

    part: int | None
    """Bytes up to which files can be read from here. Nodes write larger ones in parts of this
    size. None where files of any size can be read."""

    def now(self) -> float:
        """The time by the clock that dates entries, in seconds of the epoch."""

    def size(self, path: str) -> int | None:
        """Bytes of a file; None where nothing has that path. Raises BackendError with the code
        `staging_taken` for a folder, where the storage can tell."""

    def put(self, path: str, content: bytes | Path, sent: Sent = ignore_bytes) -> None:
        """Write a file, over the file that was there. Its folder exists already.

        Readers see the old file or the new one, whole, and never a part: also when this process
        is killed, or when several write the same path at once. The last of these wins. When this
        returns, the file is durable, and `size`, `get` and `list` see it.

        Args:
            content: the bytes, or a file with them, which does not change meanwhile.
            sent: called with the number of bytes that were sent, if `content` is a file.
        """

    def get(self, path: str) -> bytes:
        """Read a file. Raises RemoteMissing where it is not there."""

    def fetch(self, path: str, file: Path, received: Sent = ignore_bytes) -> None:
        """Read a file into one of this machine, which may be incomplete if this fails. Raises
        RemoteMissing where it is not there. `received` is called with the number of each further
        bytes."""

    def list(self, folder: str) -> tuple[RemoteEntry, ...]:
        """What a folder holds, by name; nothing if there is no such folder. Incomplete uploads may
        show as files with other names; gc deletes them."""

    def make_folder(self, folder: str) -> None:
        """Make a folder and those above it; harmless where they exist."""

    def delete(self, path: str) -> None:
        """Delete a file, or a folder with all that it holds; harmless where it is not there, or
        where somebody else deletes it at the same time."""


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
    """What is to be written, as a stream; see `RemoteFiles.put`."""
    with (
        io.BytesIO(content) if isinstance(content, bytes) else CountingReader(content, sent)
    ) as stream:
        yield stream


def save_stream(stream: BinaryIO, file: Path, received: Sent) -> None:
    """Write a stream to a file of this machine; see `RemoteFiles.fetch`. Raises OSError."""
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


def get_object(files: RemoteFiles, path: str) -> dict[str, Any]:
    """Read a file with a JSON object. Raises RemoteMissing where it is not there, and BackendError
    where it is not whole: nobody takes it for one that says nothing."""
    read = parse_object(files.get(path))
    if read is None:
        raise cut_short(path)
    return read


def folder_size(files: RemoteFiles, folder: str) -> int:
    """Bytes of all files in a folder. Raises BackendError."""
    return sum(
        folder_size(files, f"{folder}/{item.name}") if item.folder else item.size
        for item in files.list(folder)
    )
