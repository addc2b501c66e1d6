"""The logs that Ray's processes write on a node: their last lines, and a copy of a failed run's."""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["keep_logs", "last_lines"]

_LINES = 20
_TAIL = 64 << 10
_NOISE = "[state-dump]"  # a raylet writes hundreds of such lines each minute
_MOST_BYTES = 20 << 20  # of the logs of one node


def last_lines(*paths: str) -> str | None:
    """Return the last lines of these files together, the last file's last; None if they are
    empty."""
    every = (line for path in paths for line in _tail(path).splitlines())
    lines = [line for line in every if line.strip() and not line.startswith(_NOISE)]
    return "\n".join(lines[-_LINES:]) or None


def _tail(path: str) -> str:
    try:
        with open(path, "rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - _TAIL))
            return file.read().decode("utf-8", "replace")
    except OSError:
        return ""


def keep_logs(folder: str, target: str, redact: Callable[[str], str]) -> int:
    """Copy the logs below a folder without the values of secrets, the newest first, as many as fit;
    return how many were copied.

    Raises:
        OSError: the target cannot be written.
    """
    room, kept = _MOST_BYTES, 0
    for _, size, path in sorted(_files(folder), reverse=True):
        if size > room:
            continue
        try:
            with open(os.path.join(folder, path), "rb") as file:
                text = file.read(size).decode("utf-8", "surrogateescape")
        except OSError:
            continue
        copy = os.path.join(target, path)
        os.makedirs(os.path.dirname(copy), mode=0o700, exist_ok=True)
        with open(copy, "wb") as file:
            file.write(redact(text).encode("utf-8", "surrogateescape"))
        room -= size
        kept += 1
    return kept


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
