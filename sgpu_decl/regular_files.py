"""Files of a project are opened only where they are regular files: opening a FIFO waits for a
writer, and opening a device may do something."""

import errno
import io
import os
import stat
from pathlib import Path

__all__ = ["NotRegular", "is_below", "leads_out", "open_regular", "read_regular", "special_kind"]

_KINDS = (
    (stat.S_ISFIFO, "a FIFO"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)


class NotRegular(OSError):
    """There is a FIFO, a socket or a device in the place of a file; `strerror` says which."""


def special_kind(mode: int) -> str | None:
    """`a FIFO`, `a socket` or `a device` by the mode of a file; `None` for all others."""
    return next((words for is_kind, words in _KINDS if is_kind(mode)), None)


def open_regular(path: str | Path) -> io.BufferedReader:
    """Open a regular file, or a link to one, for reading; never waits.

    Raises:
        NotRegular: it is a FIFO, a socket or a device.
        OSError: it cannot be opened.
    """
    _refuse_special(os.stat(path).st_mode)  # before opening: that alone may do something
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
    try:
        mode = os.fstat(handle).st_mode
        _refuse_special(mode)
        if stat.S_ISDIR(mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), os.fspath(path))
        return os.fdopen(handle, "rb")
    except BaseException:
        os.close(handle)
        raise


def read_regular(path: str | Path) -> bytes:
    """The content of a regular file; raises as `open_regular`."""
    with open_regular(path) as file:
        return file.read()


def leads_out(path: str | Path, *tops: str | Path) -> bool:
    """Whether a path is a link to what lies in none of these folders."""
    if not os.path.islink(path):
        return False
    real = os.path.realpath(path)
    return not any(is_below(real, os.path.realpath(top)) for top in tops)


def is_below(path: str | Path, top: str | Path) -> bool:
    """Whether a path is that of a folder or of something in it, by their words alone."""
    folder = os.path.abspath(top)
    return os.path.commonpath((os.path.abspath(path), folder)) == folder


def _refuse_special(mode: int) -> None:
    if kind := special_kind(mode):
        raise NotRegular(errno.EINVAL, f"it is {kind}, not a file")
