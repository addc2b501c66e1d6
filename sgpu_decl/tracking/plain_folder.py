"""Another name for a folder whose path cannot stand in the URI of a store.

SQLAlchemy takes what follows a `?` for options, and from 2.1 on reads `%20` as a space; before, no
other form of such a path is read. MLflow reads `%20` in paths of artifacts. So such a folder gets a
link of a plain name in the user's state folder, which all of them read alike.
"""

import hashlib
import os
from contextlib import suppress
from pathlib import Path

_MISREAD = ("?", "%")


def plain_folder(folder: Path) -> Path:
    """Return the name of a folder that can stand in URIs: its own, or that of its link."""
    path = folder.absolute()
    if not any(mark in str(path) for mark in _MISREAD):
        return path
    import platformdirs

    name = hashlib.sha256(os.fsencode(path)).hexdigest()[:16]
    return Path(platformdirs.user_state_path("sgpu")) / "folders" / name


def link_plain_folder(folder: Path) -> None:
    """Make the link of a folder, if it needs one.

    Raises:
        OSError: it cannot be made.
    """
    plain, path = plain_folder(folder), folder.absolute()
    if plain == path or plain.is_symlink():
        return
    plain.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    with suppress(FileExistsError):  # another launch made it meanwhile
        plain.symlink_to(path)
