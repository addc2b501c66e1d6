"""`RemoteFiles` of a folder that this machine and all nodes have mounted: NFS, Lustre, a disk."""

import errno
import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from uuid import uuid4

from sgpu_decl.atomic_files import LEFT_AFTER, sync_folder
from sgpu_decl.backends.remote.files import (
    RemoteEntry,
    RemoteMissing,
    ignore_bytes,
    save_stream,
    upload_stream,
)
from sgpu_decl.errors import BackendError
from sgpu_decl.model.step_progress import Sent
from sgpu_decl.system_errors import FULL, advice, error_text

__all__ = ["FolderFiles"]

_CHUNK = 1 << 20
_PARTIAL = ".partial-"  # an upload that goes on, or was cut off


class FolderFiles:
    """See `RemoteFiles`. Paths are those of this machine. A file is written beside its place,
    flushed to the disk and renamed."""

    part: int | None = None

    def now(self) -> float:
        return time.time() + self._ahead

    def __init__(self, root: Path) -> None:
        self._root = root
        self._known: float | None = None

    @property
    def _ahead(self) -> float:
        """How many seconds the clock that dates files is ahead of this machine's: a file server
        has a clock of its own."""
        if self._known is None:
            self._drop_left()
            probe = self._root / f"{_PARTIAL}{uuid4().hex}"
            with _explained(f"writing into `{self._root}`"):
                try:
                    probe.touch()
                    self._known = probe.stat().st_mtime - time.time()
                    probe.unlink()
                except FileNotFoundError:
                    return 0.0  # nothing there is dated yet
        return self._known

    def _drop_left(self) -> None:
        """Delete what was left of such probes by processes that were killed."""
        oldest = time.time() - LEFT_AFTER.total_seconds()
        for left in self._root.glob(f"{_PARTIAL}*"):
            with suppress(OSError):  # of another user, or deleted meanwhile
                if left.stat().st_mtime < oldest:
                    left.unlink()

    def size(self, path: str) -> int | None:
        with _explained(f"looking at `{path}`"):
            try:
                if os.path.isdir(path):
                    raise BackendError(
                        f"`{path}` is no file but a folder",
                        hint="move it away, or use another folder",
                        code="staging_taken",
                    )
                return os.stat(path).st_size
            except (FileNotFoundError, NotADirectoryError):
                return None

    def put(self, path: str, content: bytes | Path, sent: Sent = ignore_bytes) -> None:
        folder = path.rpartition("/")[0]
        partial = f"{folder}/{_PARTIAL}{uuid4().hex}"
        with _explained(f"writing `{path}`"):
            try:
                with upload_stream(content, sent) as stream, open(partial, "xb") as target:
                    shutil.copyfileobj(stream, target, _CHUNK)
                    target.flush()
                    os.fsync(target.fileno())
                os.replace(partial, path)
            except BaseException:
                with suppress(OSError):
                    os.unlink(partial)
                raise
            sync_folder(folder)

    def get(self, path: str) -> bytes:
        with _explained(f"reading `{path}`"), open(path, "rb") as file:
            return file.read()

    def fetch(self, path: str, file: Path, received: Sent = ignore_bytes) -> None:
        with _explained(f"reading `{path}`"), open(path, "rb") as stream:
            save_stream(stream, file, received)

    def list(self, folder: str) -> tuple[RemoteEntry, ...]:
        with _explained(f"looking into `{folder}`"):
            try:
                with os.scandir(folder) as entries:
                    entries_there = [
                        entry for item in entries if (entry := _entry(item)) is not None
                    ]
            except (FileNotFoundError, NotADirectoryError):
                return ()
        return tuple(sorted(entries_there, key=lambda entry: entry.name))

    def make_folder(self, folder: str) -> None:
        with _explained(f"making the folder `{folder}`"):
            os.makedirs(folder, exist_ok=True)

    def delete(self, path: str) -> None:
        with _explained(f"deleting `{path}`"):
            try:
                if os.path.isdir(path) and not os.path.islink(path):
                    _delete_folder(path)
                else:
                    os.unlink(path)
            except (FileNotFoundError, NotADirectoryError):
                return


def _entry(item: "os.DirEntry[str]") -> RemoteEntry | None:
    """None where it was deleted meanwhile."""
    try:
        if item.is_dir(follow_symlinks=False):
            return RemoteEntry(name=item.name, folder=True)
        status = item.stat(follow_symlinks=False)
    except FileNotFoundError:
        return None
    return RemoteEntry(name=item.name, folder=False, size=status.st_size, modified=status.st_mtime)


def _delete_folder(folder: str) -> None:
    """Delete a folder into which a node may still write, or which somebody else deletes."""
    while True:
        with os.scandir(folder) as entries:
            for entry in entries:
                with suppress(FileNotFoundError):
                    if entry.is_dir(follow_symlinks=False):
                        _delete_folder(entry.path)
                    else:
                        os.unlink(entry.path)
        try:
            os.rmdir(folder)
        except OSError as error:
            if error.errno != errno.ENOTEMPTY:
                raise
        else:
            return


@contextmanager
def _explained(doing: str) -> Iterator[None]:
    """Turn errors of the file system into ours."""
    try:
        yield
    except FileNotFoundError as error:
        raise RemoteMissing(
            f"{doing}: {error_text(error)}", hint="see that the folder is mounted on this machine"
        ) from error
    except OSError as error:
        code = "remote_broken"
        if error.errno in FULL:
            code = "no_room"
        elif isinstance(error, PermissionError):
            code = "permission_denied"
        raise BackendError(
            f"{doing}: {error_text(error)}", hint=advice(error), code=code
        ) from error
