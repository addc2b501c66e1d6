"""Files of a folder that several machines see, on a disk, NFS or Lustre.

A file is written beside its place under a name of its own, flushed to the disk, and renamed; or
linked where it must be new. `link` is atomic on local file systems and on NFS (RFC 1813, section
3.3.15), and fails where the name is taken.

All functions raise OSError.
"""

from __future__ import annotations

import errno
import os
import time
from contextlib import contextmanager, suppress

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from contextlib import AbstractContextManager

    Entry = tuple[str, bool, int, float]

DRAFT = ".new-"
"""What the name of an upload begins with that goes on, or was cut off."""

_LEFT_AFTER = 3600.0  # seconds after which it was cut off


def put_file(path: str, draft: AbstractContextManager[str]) -> None:
    """Write a file, from its draft, over the one that was there."""
    with draft as written:
        os.replace(written, path)


def create_file(path: str, draft: AbstractContextManager[str]) -> bool:
    """The same where nothing has that path; else false."""
    with draft as written:
        try:
            os.link(written, path)
        except FileExistsError:
            return False
    return True


@contextmanager
def file_draft(
    path: str,
    parts: Iterable[bytes],
    mode: int = 0o600,
    opened: Callable[[int], object] = lambda _: None,
) -> Iterator[str]:
    """A file with that content beside `path`, on the disk; gone in the end. The names in the
    folder are on the disk then, too. `opened` gets its descriptor before it is flushed."""
    folder = path.rpartition("/")[0] or "/"
    draft = os.path.join(folder, draft_name())
    try:
        handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
        with open(handle, "wb") as target:
            target.writelines(parts)
            target.flush()
            opened(handle)
            os.fsync(handle)
        yield draft
    finally:
        with suppress(OSError):
            os.unlink(draft)
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def find_entry(path: str) -> Entry | None:
    """The name, whether it is a folder, the bytes of a file, and the time of what has that path."""
    try:
        return _entry(os.path.basename(path), os.stat(path))
    except (FileNotFoundError, NotADirectoryError):
        return None


def list_folder(folder: str, after: str = "") -> list[Entry]:
    """What a folder holds, by name, as `find_entry` gives it; nothing if it is not there."""
    found = []
    try:
        with os.scandir(folder) as entries:
            for item in entries:
                if item.name > after:
                    with suppress(FileNotFoundError):  # deleted meanwhile
                        found.append(_entry(item.name, item.stat(follow_symlinks=False)))
    except (FileNotFoundError, NotADirectoryError):
        return []
    return sorted(found)


def delete_path(path: str) -> None:
    """Delete a file, or a folder with all that it holds. No-op if it is not there, or if somebody
    else deletes it at the same time."""
    with suppress(FileNotFoundError, NotADirectoryError):
        if not os.path.isdir(path) or os.path.islink(path):
            os.unlink(path)
            return
        while True:
            with os.scandir(path) as entries:
                for entry in entries:
                    delete_path(entry.path)
            try:
                os.rmdir(path)
                break
            except OSError as error:
                if error.errno != errno.ENOTEMPTY:  # a node may still write into it
                    raise


def clock_ahead(folder: str) -> float:
    """How many seconds the clock that dates files is ahead of this machine's: a file server has a
    clock of its own."""
    oldest = time.time() - _LEFT_AFTER
    for name in os.listdir(folder):
        if name.startswith(DRAFT):
            with suppress(OSError):  # of another user, or deleted meanwhile
                left = os.path.join(folder, name)
                if os.stat(left).st_mtime < oldest:
                    os.unlink(left)
    probe = os.path.join(folder, draft_name())
    os.close(os.open(probe, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    ahead = os.stat(probe).st_mtime - time.time()
    os.unlink(probe)
    return ahead


def draft_name() -> str:
    """A name that nothing else has."""
    return f"{DRAFT}{os.urandom(6).hex()}"


def _entry(name: str, status: os.stat_result) -> Entry:
    if (status.st_mode & 0o170000) == 0o040000:
        return name, True, 0, status.st_mtime
    return name, False, status.st_size, status.st_mtime
