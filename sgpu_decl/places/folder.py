"""A folder that machines have mounted, as a place: NFS, Lustre, a disk.

How files are written: `agent.system.folder_files`. Times are those that the file system gives to
files, so they are the file server's.
"""

import errno
import os
import shlex
import shutil
import time
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

from sgpu_decl.agent.system.folder_files import (
    clock_ahead,
    create_file,
    delete_path,
    draft_name,
    file_draft,
    find_entry,
    list_folder,
    put_file,
)
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
        """See `clock_ahead`. 0 for who may write no file that would tell it."""
        if self._known is None:
            with self._explained(f"writing into `{self._root}`"):
                try:
                    self._known = clock_ahead(os.fspath(self._root))
                except (FileNotFoundError, PermissionError):
                    return 0.0  # nothing there is dated yet, or not by this user
        return self._known

    def stat(self, path: str) -> PlaceEntry | None:
        with self._explained(f"looking at `{path}`"):
            found = find_entry(path)
        return None if found is None else place_entry(found)

    def get(self, path: str) -> bytes:
        with self._explained(f"reading `{path}`"), open(path, "rb") as file:
            return file.read()

    def fetch(self, path: str, file: Path, received: Sent = ignore_bytes) -> None:
        with self._explained(f"reading `{path}`"), open(path, "rb") as stream:
            save_stream(stream, file, received)

    def put(self, path: str, content: bytes | Path, sent: Sent = ignore_bytes) -> None:
        with self._explained(f"writing `{path}`"), upload_stream(content, sent) as stream:
            put_file(path, self._draft(path, stream))

    def create(self, path: str, content: bytes) -> bool:
        with self._explained(f"writing `{path}`"), upload_stream(content, ignore_bytes) as stream:
            try:
                return create_file(path, self._draft(path, stream))
            except OSError as error:
                if error.errno not in _NO_LINKS:
                    raise
                raise BackendError(
                    f"the file system of `{self._root}` makes no hard links, and files that "
                    "must be new need them",
                    hint="use a folder on NFS or on a local disk",
                    code="remote_broken",
                ) from error

    def _draft(self, path: str, stream: BinaryIO) -> AbstractContextManager[str]:
        return file_draft(
            path,
            iter(partial(stream.read, _CHUNK), b""),
            self._mode,
            lambda handle: self._share(handle, 0o660) if self._shared else None,
        )

    def list(self, folder: str, *, after: str = "") -> tuple[PlaceEntry, ...]:
        with self._explained(f"looking into `{folder}`"):
            return tuple(map(place_entry, list_folder(folder, after)))

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
        draft = folder.with_name(draft_name())
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
            delete_path(path)

    @contextmanager
    def _explained(self, doing: str) -> Iterator[None]:
        """Turn errors of the file system into ours."""
        try:
            if self._shared:
                self._require_marker()
            yield
        except OSError as error:
            raise place_error(doing, error, "this machine") from error

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


def place_entry(found: Iterable[Any]) -> PlaceEntry:
    """What `folder_files` says of a file or a folder."""
    name, folder, size, modified = found
    return PlaceEntry(name=name, folder=folder, size=size, modified=modified)


def place_error(doing: str, error: OSError, machine: str) -> BackendError:
    """An error of the file system of a machine as ours."""
    if isinstance(error, FileNotFoundError):
        return PlaceMissing(
            f"{doing}: {error_text(error)}", hint=f"see that the folder is mounted on {machine}"
        )
    code = "remote_broken"
    if error.errno in FULL:
        code = "no_room"
    elif isinstance(error, PermissionError):
        code = "permission_denied"
    found = BackendError(f"{doing}: {error_text(error)}", hint=advice(error), code=code)
    found.retryable = error.errno in _PASSING
    return found
