"""Files and folders that somebody else may read, replace or delete: opened and made safely.

A FIFO in the place of a file blocks whoever opens it until somebody writes; a device may never end.
The path of a folder that is open may become that of another one: if a user deletes the state while
a run is active and applies again, a new folder gets the same name. The old run must not write to
it.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pathlib import Path


def regular_opener(path: str, flags: int) -> int:
    """Open a regular file, never waiting: an `opener` for `open`.

    Raises:
        OSError: it cannot be opened, or is a FIFO, a device, a socket or a folder.
    """
    descriptor = os.open(path, flags | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "not a regular file", path)
    return descriptor


def private_folder(folder: Path) -> None:
    """Make a folder that only its owner may enter, unless it is there. Those above it that are
    missing become the same: `Path.mkdir` makes them as the umask says. Raises OSError."""
    try:
        folder.mkdir(mode=0o700)
    except FileNotFoundError:
        private_folder(folder.parent)
        private_folder(folder)
    except FileExistsError:
        if not folder.is_dir():
            raise


class FolderHandle:
    """A folder held open: its path may become that of another one. `path` must be there."""

    def __init__(self, path: str) -> None:
        self._path = path
        # While it is open, no other folder gets its inode.
        self._descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self._mark: str | None = None

    def watch(self, mark: str) -> None:
        """Have SIGIO sent to this process whenever a file of the folder is deleted.

        From now on the folder counts as deleted once the file `mark` is gone: `rm -r` deletes a
        folder last, and fails to while ranks still write to it.

        Raises:
            OSError: this kernel cannot do it.
        """
        self._mark = os.path.join(self._path, mark)
        fcntl.fcntl(self._descriptor, fcntl.F_NOTIFY, fcntl.DN_DELETE | fcntl.DN_MULTISHOT)

    @property
    def in_place(self) -> bool:
        """Whether the path still leads to this folder, and the folder is whole."""
        ours = os.fstat(self._descriptor)
        try:
            there = os.stat(self._path)
        except OSError:
            return False
        same = (ours.st_dev, ours.st_ino) == (there.st_dev, there.st_ino)
        return same and (self._mark is None or os.path.exists(self._mark))

    @property
    def deleted(self) -> bool:
        """Whether the folder was deleted. A folder that was only moved away may come back."""
        if os.fstat(self._descriptor).st_nlink == 0:
            return True
        if self._mark is None:
            return False
        try:
            os.stat(os.path.basename(self._mark), dir_fd=self._descriptor)
        except FileNotFoundError:
            return True
        return False

    def check(self) -> None:
        """Return if the path still leads to this folder.

        Raises:
            OSError: it was deleted; another may lie in its place.
        """
        if not self.in_place:
            raise FileNotFoundError(errno.ENOENT, "the folder of this attempt is gone", self._path)
