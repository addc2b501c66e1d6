"""Rights of new files and folders in a folder that several accounts share: those of its group."""

import os
from contextlib import suppress
from pathlib import Path

__all__ = ["make_shared_folder", "share"]

_FOLDER = 0o2770  # new entries of a folder get its group


def make_shared_folder(folder: Path, *, root: Path) -> None:
    """Make a folder, with those above it up to `root`, for whoever may use `root`.

    Raises:
        OSError: it cannot be made.
    """
    if folder == root or folder.is_dir():
        return
    make_shared_folder(folder.parent, root=root)
    folder.mkdir(exist_ok=True)
    share(folder, _FOLDER, root=root)


def share(made: Path | int, most: int, *, root: Path) -> None:
    """Give something new the group of `root`, and the rights that the group has there, whatever the
    umask says. If somebody else made it meanwhile, or this account is not of the group, it stays as
    it is.

    Args:
        made: a path, or the descriptor of an open file.
        most: the permissions that it may get.

    Raises:
        OSError: it is not there any more.
    """
    shared = root.stat()
    with suppress(PermissionError):
        os.chown(made, -1, shared.st_gid)
        mode = os.stat(made).st_mode
        os.chmod(made, mode | (shared.st_mode & most & 0o2070))
