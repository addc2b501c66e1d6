"""The folder of a state that machines share: whether it is there, and rights for all who use it."""

import os
import shlex
import shutil
from contextlib import suppress
from pathlib import Path

from sgpu_decl.storing.journal.port import StoreDown

__all__ = ["MARKER", "SharedFolder"]

MARKER = ".sgpu-state"
_KEEP = ".keep"
"""A file in each folder: a folder that is not empty is replaced by no other of its name."""


class SharedFolder:
    """`path` is the folder of all projects. The file `MARKER` has to be in it, made by hand: where
    its file system is not mounted, a new state would begin in the mount point."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def require(self) -> None:
        """Check that the folder is one of states.

        Raises:
            StoreDown: it is not; maybe it was until now.
            OSError: it cannot be looked at.
        """
        marker = self.path / MARKER
        if marker.exists():
            return
        folder, named = shlex.quote(os.fspath(self.path)), shlex.quote(os.fspath(marker))
        raise StoreDown(
            f"`{self.path}` holds no shared state: `{marker}` is not there",
            hint="is its file system mounted? For a first state: "
            f"`mkdir -p {folder} && touch {named}`",
        )

    def make(self, folder: Path) -> None:
        """Make a folder, with those above it up to `path`, for whoever may use `path`.

        Raises:
            OSError: it cannot be made.
        """
        if folder == self.path or folder.is_dir():
            return
        self.make(folder.parent)
        # It gets its name once it has its rights: another user may look for it at any moment, and
        # could never use one whose maker was killed in between.
        draft = folder.with_name(f".new-{os.urandom(6).hex()}")
        draft.mkdir()
        try:
            (draft / _KEEP).touch()
            self._share(draft, 0o2770)
            draft.rename(folder)
        except OSError:
            shutil.rmtree(draft, ignore_errors=True)
            if not folder.is_dir():  # else somebody else was faster
                raise

    def share_file(self, handle: int) -> None:
        """Let whoever may use `path` use a new file."""
        self._share(handle, 0o660)

    def _share(self, made: Path | int, most: int) -> None:
        """Give something new the group of `path`, and its rights there, whatever the umask says.
        Where the group is not ours, it stays as it is."""
        shared = self.path.stat()
        with suppress(PermissionError):
            os.chown(made, -1, shared.st_gid)
            mode = os.stat(made).st_mode
            os.chmod(made, mode | (shared.st_mode & most & 0o2070))
