"""Opens files of a project only if they are regular files: opening a FIFO waits for a writer, and
opening a device may have an effect. Finds no programs in a project that is not trusted."""

import errno
import io
import os
import stat
import sys
from collections.abc import Mapping
from pathlib import Path

_KINDS = (
    (stat.S_ISFIFO, "a FIFO"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)


class NotRegular(OSError):
    """The path is a FIFO, a socket or a device; `strerror` says which."""


def special_kind(mode: int) -> str | None:
    """Return `a FIFO`, `a socket` or `a device` for the mode of a file; `None` for other kinds."""
    if stat.S_ISREG(mode):
        return None
    return next((words for is_kind, words in _KINDS if is_kind(mode)), None)


def open_regular(path: str | Path) -> io.BufferedReader:
    """Open a regular file, or a link to one, for reading; never waits.

    Raises:
        NotRegular: it is a FIFO, a socket or a device.
        OSError: it cannot be opened.
    """
    return os.fdopen(_descriptor(path), "rb")


def read_head(path: str | Path, most: int) -> bytes:
    """Return the first bytes of a regular file, up to `most`. Raises as `open_regular`."""
    handle = _descriptor(path)
    try:
        head = os.read(handle, most)
        while len(head) < most and (piece := os.read(handle, most - len(head))):
            head += piece
        return head
    finally:
        os.close(handle)


def read_regular(path: str | Path) -> bytes:
    """Return the content of a regular file. Raises as `open_regular`."""
    with open_regular(path) as file:
        return file.read()


def leads_out(path: str | Path, *tops: str | Path) -> bool:
    """Whether a path is a link that leads out of all of these folders."""
    if not os.path.islink(path):
        return False
    real = os.path.realpath(path)
    return not any(is_below(real, os.path.realpath(top)) for top in tops)


def is_below(path: str | Path, top: str | Path) -> bool:
    """Whether a path is a folder or lies in it, by the text of both alone."""
    folder = os.path.abspath(top)
    return os.path.commonpath((os.path.abspath(path), folder)) == folder


def trusted_path(environ: Mapping[str, str], guarded: Path | None) -> str:
    """The PATH without folders of a project, but for that of sgpu itself. A project that is the
    home of the user has the user's own programs."""
    path = environ.get("PATH", "")
    if guarded is None or is_below(os.path.expanduser("~"), guarded):
        return path
    own, real = os.path.dirname(sys.executable), os.path.realpath(guarded)
    return os.pathsep.join(
        folder
        for folder in path.split(os.pathsep)
        if folder == own or (os.path.isabs(folder) and not is_below(os.path.realpath(folder), real))
    )


def _descriptor(path: str | Path) -> int:
    """Open a file as `open_regular` does; return the descriptor."""
    _refuse_special(os.stat(path).st_mode)  # before it is opened, which may have an effect
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
    try:
        mode = os.fstat(handle).st_mode
        _refuse_special(mode)
        if stat.S_ISDIR(mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), os.fspath(path))
    except BaseException:
        os.close(handle)
        raise
    return handle


def _refuse_special(mode: int) -> None:
    if kind := special_kind(mode):
        raise NotRegular(errno.EINVAL, f"it is {kind}, not a file")
