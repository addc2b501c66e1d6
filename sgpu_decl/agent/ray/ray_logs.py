"""The logs that Ray's processes write on a node: their last lines, and a copy of a failed run's."""

from __future__ import annotations

import os
import re

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

_LINES = 20
_TAIL = 1 << 20  # minutes of an idle process, in which it writes noise alone
# Of a stack that ends in an import, most lines are these.
_NOISE = ("[state-dump]", '  File "<frozen importlib', "Extension modules: ")
# Each minute, Ray's processes write their state, up to hundreds of lines below one of these. It
# ends with the next message, or with what a crash writes.
_HEADS_OF_STATE = ("Event stats:", "Gcs Debug state:", "[state-dump] NodeManager:")
# A failed check of Ray is one line, and below this one come the frames of C++ that led to it.
_HEAD_OF_FRAMES = "*** StackTrace Information ***"
_MESSAGES = ("*** ", "[failure_signal_handler", *(f"[{digit}" for digit in "0123456789"))
# What a process of Ray logs before it ends itself, with the severity `C`.
_FATAL = re.compile(r"\[[^]]* C \d+ \d+\] \(\S+\) \S+:\d+: +(.*)")
_REQUEST = re.compile(r"An unexpected system state has occurred\..* to fix it\. ")
_MOST_BYTES = 20 << 20  # of the logs of one node, of all its starts together
_MOST_OF_ONE = 5 << 20  # of one file: else the log of one task may leave no room for a raylet's


def last_lines(*paths: str) -> str | None:
    """Return the last lines of these files together, the last file's last; None if they are
    empty."""
    lines: list[str] = []
    for path in paths:
        found = list(_without_state(_tail(path).splitlines()))
        lines += found if found[-1:] != lines[-1:] else found[:-1]  # both have what is fatal
    return "\n".join(lines[-_LINES:]) or None


def fatal_message(lines: str) -> str | None:
    """Return why a process of Ray ended itself, a failed check for instance, from its last lines;
    None if they do not say it."""
    found = _FATAL.findall(lines)
    return _REQUEST.sub("", found[-1]).strip() if found else None


def _without_state(lines: Iterable[str]) -> Iterator[str]:
    """Yield the lines that say what happened."""
    skipped = False
    for line in lines:
        if line.endswith((*_HEADS_OF_STATE, _HEAD_OF_FRAMES)):
            skipped = True
        elif line.startswith(_MESSAGES):
            skipped = False
        if line.strip() and not skipped and not line.startswith(_NOISE):
            yield line


def _tail(path: str) -> str:
    try:
        with open(path, "rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - _TAIL))
            return file.read().decode("utf-8", "replace")
    except OSError:
        return ""


def keep_logs(
    folder: str, target: str, earlier: Iterable[str], redact: Callable[[str], str]
) -> int:
    """Copy the logs below a folder without the values of secrets, the newest first, until the room
    of the node is full; return how many were copied. Of a large one, the end is copied.

    What was kept of earlier starts of the node shares the room: the folders `earlier`, the newest
    first, keep what still fits.

    Raises:
        OSError: the target cannot be written.
    """
    room, kept = _MOST_BYTES, 0
    for changed, size, path in sorted(_files(folder), reverse=True):
        try:
            data = _end_of(os.path.join(folder, path), size, min(room, _MOST_OF_ONE))
        except OSError:
            continue
        if not data:
            continue
        text = redact(data.decode("utf-8", "surrogateescape"))
        copy = os.path.join(target, path)
        os.makedirs(os.path.dirname(copy), mode=0o700, exist_ok=True)
        with open(copy, "wb") as file:
            room -= file.write(text.encode("utf-8", "surrogateescape"))
        os.utime(copy, ns=(changed, changed))
        kept += 1
    _shrink(earlier, room)
    return kept


def _end_of(path: str, size: int, most: int) -> bytes:
    """Return a file of that size, or its last lines in at most so many bytes. Lines stay whole,
    because secrets are found in whole lines."""
    with open(path, "rb") as file:
        if size <= most:
            return file.read(size)
        file.seek(size - most - 1)
        return file.read(most + 1).partition(b"\n")[2]


def _shrink(folders: Iterable[str], room: int) -> None:
    """Remove the files that do not fit into the room any more, the oldest first."""
    for folder in folders:
        for _, size, path in sorted(_files(folder), reverse=True):
            if size <= room:
                room -= size
            else:
                os.unlink(os.path.join(folder, path))


def _files(folder: str) -> Iterator[tuple[int, int, str]]:
    """Yield (time of the last change, size, relative path) of the files that are not empty."""
    for parent, _, names in os.walk(folder):
        for name in names:
            path = os.path.join(parent, name)
            try:
                status = os.lstat(path)
            except OSError:
                continue
            if status.st_size and not os.path.islink(path):
                yield status.st_mtime_ns, status.st_size, os.path.relpath(path, folder)
