"""A folder that machines have mounted, as a place: NFS, Lustre, a disk.

A file is written beside its place under a name of its own, flushed to the disk, and renamed; or
linked where it must be new. `link` is atomic on local file systems and on NFS (RFC 1813, section
3.3.15), and fails where the name is taken. Times are those that the file system gives to files, so
they are the file server's.
"""

import errno
import os
import shlex
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from sgpu_decl.atomic_files import LEFT_AFTER, sync_folder
from sgpu_decl.errors import BackendError
from sgpu_decl.model.step_progress import Sent
from sgpu_decl.places.file_place import (
    PlaceEntry,
    PlaceMissing,
    ignore_bytes,
    save_stream,
    upload_stream,
)
from sgpu_decl.system_errors import FULL, advice, error_text

MARKER = ".sgpu-state"
"""A file that says that a folder is mounted, and one of shared states."""

_CHUNK = 1 << 20
_DRAFT = ".new-"  # an upload that goes on, or was cut off
_KEEP = ".keep"
"""A file in each shared folder: one that is not empty is replaced by no other of its name."""
_NO_LINKS = {errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK}
_PASSING = {
    errno.EAGAIN,
    errno.EBUSY,
    errno.EINTR,
    errno.EIO,
    errno.EROFS,  # after errors of the disk
    errno.ESTALE,
    errno.ETIMEDOUT,
}


class FolderPlace:
    """See `FilePlace`. Paths are those of this machine.

    Args:
        mode: the rights of new files, before the umask.
        shared: the file `MARKER` has to be in the root, made by hand: where its file system is not
            mounted, a new state would begin in the mount point. Whoever may use the root may use
            what is made below, whatever the umask says.
    """

    part: int | None = None
    lag = 0.0

    def __init__(self, root: Path, *, shared: bool = False, mode: int = 0o666) -> None:
        self._root = root
        self._shared = shared
        self._mode = 0o660 if shared else mode
        self._known: float | None = None

    def now(self) -> float:
        return time.time() + self._ahead

    @property
    def _ahead(self) -> float:
        """How many seconds the clock that dates files is ahead of this machine's: a file server
        has a clock of its own. 0 for who may write no file that would tell it."""
        if self._known is None:
            self._drop_left()
            probe = self._root / _draft()
            with self._explained(f"writing into `{self._root}`"):
                try:
                    probe.touch()
                    self._known = probe.stat().st_mtime - time.time()
                    probe.unlink()
                except (FileNotFoundError, PermissionError):
                    return 0.0  # nothing there is dated yet, or not by this user
        return self._known

    def _drop_left(self) -> None:
        """Delete what was left of such probes by processes that were killed."""
        oldest = time.time() - LEFT_AFTER.total_seconds()
        for left in self._root.glob(f"{_DRAFT}*"):
            with suppress(OSError):  # of another user, or deleted meanwhile
                if left.stat().st_mtime < oldest:
                    left.unlink()

    def stat(self, path: str) -> PlaceEntry | None:
        with self._explained(f"looking at `{path}`"):
            try:
                return _entry(os.path.basename(path), os.stat(path))
            except (FileNotFoundError, NotADirectoryError):
                return None

    def get(self, path: str) -> bytes:
        with self._explained(f"reading `{path}`"), open(path, "rb") as file:
            return file.read()

    def fetch(self, path: str, file: Path, received: Sent = ignore_bytes) -> None:
        with self._explained(f"reading `{path}`"), open(path, "rb") as stream:
            save_stream(stream, file, received)

    def put(self, path: str, content: bytes | Path, sent: Sent = ignore_bytes) -> None:
        with self._draft(path, content, sent) as draft:
            os.replace(draft, path)

    def create(self, path: str, content: bytes) -> bool:
        with self._draft(path, content, ignore_bytes) as draft:
            try:
                os.link(draft, path)
            except FileExistsError:
                return False
            except OSError as error:
                if error.errno in _NO_LINKS:
                    raise BackendError(
                        f"the file system of `{self._root}` makes no hard links, and files that "
                        "must be new need them",
                        hint="use a folder on NFS or on a local disk",
                        code="remote_broken",
                    ) from error
                raise
        return True

    @contextmanager
    def _draft(self, path: str, content: bytes | Path, sent: Sent) -> Iterator[str]:
        """A file with that content beside `path`, on the disk; gone in the end. The names in the
        folder are on the disk then, too."""
        folder = path.rpartition("/")[0]
        draft = f"{folder}/{_draft()}"
        with self._explained(f"writing `{path}`"):
            try:
                flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
                handle = os.open(draft, flags, self._mode)
                with open(handle, "wb") as target, upload_stream(content, sent) as stream:
                    shutil.copyfileobj(stream, target, _CHUNK)
                    target.flush()
                    if self._shared:
                        self._share(handle, 0o660)
                    os.fsync(handle)
                yield draft
            finally:
                with suppress(OSError):
                    os.unlink(draft)
            sync_folder(folder)

    def list(self, folder: str, *, after: str = "") -> tuple[PlaceEntry, ...]:
        found = []
        with self._explained(f"looking into `{folder}`"):
            try:
                with os.scandir(folder) as entries:
                    for item in entries:
                        if item.name > after:
                            with suppress(FileNotFoundError):  # deleted meanwhile
                                found.append(_entry(item.name, item.stat(follow_symlinks=False)))
            except (FileNotFoundError, NotADirectoryError):
                return ()
        return tuple(sorted(found, key=lambda entry: entry.name))

    def make_folder(self, folder: str) -> None:
        with self._explained(f"making the folder `{folder}`"):
            if self._shared:
                self._make_shared(Path(folder))
            else:
                os.makedirs(folder, exist_ok=True)

    def _make_shared(self, folder: Path) -> None:
        """Make a folder, with those above it up to the root, for whoever may use the root."""
        if folder == self._root or folder.is_dir():
            return
        self._make_shared(folder.parent)
        # It gets its name once it has its rights: another user may look for it at any moment, and
        # could never use one whose maker was killed in between.
        draft = folder.with_name(_draft())
        draft.mkdir()
        try:
            (draft / _KEEP).touch()
            self._share(draft, 0o2770)
            draft.rename(folder)
        except OSError:
            shutil.rmtree(draft, ignore_errors=True)
            if not folder.is_dir():  # else somebody else was faster
                raise

    def _share(self, made: Path | int, most: int) -> None:
        """Give something new the group of the root, and its rights there, whatever the umask says.
        Where the group is not ours, it stays as it is."""
        root = self._root.stat()
        with suppress(PermissionError):
            os.chown(made, -1, root.st_gid)
            mode = os.stat(made).st_mode
            os.chmod(made, mode | (root.st_mode & most & 0o2070))

    def delete(self, path: str) -> None:
        with self._explained(f"deleting `{path}`"):
            try:
                if os.path.isdir(path) and not os.path.islink(path):
                    _delete_folder(path)
                else:
                    os.unlink(path)
            except (FileNotFoundError, NotADirectoryError):
                return

    @contextmanager
    def _explained(self, doing: str) -> Iterator[None]:
        """Turn errors of the file system into ours."""
        try:
            if self._shared:
                self._require_marker()
            yield
        except FileNotFoundError as error:
            raise PlaceMissing(
                f"{doing}: {error_text(error)}",
                hint="see that the folder is mounted on this machine",
            ) from error
        except OSError as error:
            code = "remote_broken"
            if error.errno in FULL:
                code = "no_room"
            elif isinstance(error, PermissionError):
                code = "permission_denied"
            raised = BackendError(f"{doing}: {error_text(error)}", hint=advice(error), code=code)
            raised.retryable = error.errno in _PASSING
            raise raised from error

    def _require_marker(self) -> None:
        """Raises BackendError where the root is not mounted: retryable, since it may be again."""
        marker = self._root / MARKER
        if marker.exists():
            return
        folder, named = shlex.quote(os.fspath(self._root)), shlex.quote(os.fspath(marker))
        error = BackendError(
            f"`{self._root}` holds no shared state: `{marker}` is not there",
            hint="is its file system mounted? For a first state: "
            f"`mkdir -p {folder} && touch {named}`",
            code="remote_broken",
        )
        error.retryable = True
        raise error


def _draft() -> str:
    return f"{_DRAFT}{os.urandom(6).hex()}"


def _entry(name: str, status: os.stat_result) -> PlaceEntry:
    if (status.st_mode & 0o170000) == 0o040000:
        return PlaceEntry(name=name, folder=True, modified=status.st_mtime)
    return PlaceEntry(name=name, folder=False, size=status.st_size, modified=status.st_mtime)


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
