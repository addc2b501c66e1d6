"""The clock of the workspaces in this process: that of the machine, or one that is wrong by as much
as a test wants, since no two machines agree."""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["ahead", "changed", "now", "now_ms", "now_ns"]

_SECOND = 1_000_000_000
_wrong_ns = 0


@contextmanager
def ahead(seconds: float) -> Iterator[None]:
    """Let the workspaces' clock be that far ahead of the machine's, or behind it where it is less
    than 0."""
    global _wrong_ns
    before, _wrong_ns = _wrong_ns, int(seconds * _SECOND)
    try:
        yield
    finally:
        _wrong_ns = before


def now_ns() -> int:
    """Nanoseconds of the epoch."""
    return time.time_ns() + _wrong_ns


def now_ms() -> int:
    """Milliseconds of the epoch, as the API has them."""
    return now_ns() // 1_000_000


def now() -> float:
    """Seconds of the epoch."""
    return now_ns() / _SECOND


def changed(file: os.stat_result) -> int:
    """When a file was written to, in milliseconds of the epoch."""
    return (file.st_mtime_ns + _wrong_ns) // 1_000_000
