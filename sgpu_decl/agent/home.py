"""The folder of an attempt, held open: its path may come to mean another attempt of that number.

Who deletes a state while a run is active and applies again gets a new folder of the same name. What
the old run still has to say is no word on the new one.
"""

from __future__ import annotations

import errno
import os

__all__ = ["Home"]


class Home:
    """`path` must be there when this is made."""

    def __init__(self, path: str) -> None:
        self._path = path
        # Held open, its inode is not given to another folder.
        self._held = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)

    @property
    def there(self) -> bool:
        """Whether the path still leads to this folder."""
        ours = os.fstat(self._held)
        try:
            found = os.stat(self._path)
        except OSError:
            return False
        return (ours.st_dev, ours.st_ino) == (found.st_dev, found.st_ino)

    def check(self) -> None:
        """Return if the path still leads to this folder.

        Raises:
            OSError: it was deleted; another may lie in its place.
        """
        if not self.there:
            raise FileNotFoundError(errno.ENOENT, "the folder of this attempt is gone", self._path)
