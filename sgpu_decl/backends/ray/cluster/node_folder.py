"""The folder that node programs of one user share on a node: one folder for each of them, and what
they keep by content.

Ray sends functions of this module by value: a node has no copy of this package.
"""

from __future__ import annotations

import contextlib
import fcntl
import glob
import os
import stat
import tempfile

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

LOCKS = ".lock"
"""What the lock of a node program's folder ends with. Its actor and itself hold it."""

OBJECTS = "objects"
"""What is kept by content."""

_CONTENT_LOCK = ".content"


def private_folder() -> str:
    """The folder of all node programs of this user here. If somebody else has taken its name, or
    could write there, it is one with a longer name, which later actors find again and sweep."""
    name = os.path.join(tempfile.gettempdir(), f"sgpu-nodes-{os.getuid()}")
    with contextlib.suppress(FileExistsError):
        os.mkdir(name, 0o700)
    for folder in (name, *sorted(glob.glob(f"{glob.escape(name)}-*"))):
        status = os.lstat(folder)
        private = status.st_uid == os.getuid() and not status.st_mode & 0o077
        if private and stat.S_ISDIR(status.st_mode):
            return folder
    return tempfile.mkdtemp(prefix=f"{os.path.basename(name)}-")


def delete_content(kept: Collection[str]) -> int:
    """Delete what this node keeps by content, but for the names in `kept`, such as `code/…`; return
    the bytes. Nothing is deleted while a node program runs here. Raises OSError."""
    folder = private_folder()
    objects = os.path.join(folder, OBJECTS)
    size = 0
    with content_lock(folder):
        if any(_is_held(path) for path in glob.glob(f"{glob.escape(folder)}/*{LOCKS}")):
            return 0
        for place, _, names in os.walk(objects):
            for name in names:
                path = os.path.join(place, name)
                if os.path.relpath(path, objects) in kept:
                    continue
                with contextlib.suppress(FileNotFoundError):
                    length = os.path.getsize(path)
                    os.unlink(path)
                    size += length
    return size


@contextlib.contextmanager
def content_lock(folder: str) -> Iterator[None]:
    """Keep others from deleting or choosing what the folder has by content. A node program that
    chooses holds its own lock before."""
    lock = os.open(
        os.path.join(folder, _CONTENT_LOCK), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600
    )
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)


def _is_held(path: str) -> bool:
    try:
        lock = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(lock)
    return False
