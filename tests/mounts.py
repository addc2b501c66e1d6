"""File systems that a test mounts on a folder; it is skipped where that is not allowed."""

import errno
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

__all__ = ["bound", "fill", "mount", "small_disk"]


def mount(*words: str) -> None:
    subprocess.run(["mount", *words], check=True, capture_output=True)


@contextmanager
def bound(folder: Path) -> Iterator[None]:
    """A mount of a folder on itself, which can be made read-only."""
    with _mounted(folder, "--bind", str(folder)):
        yield


@contextmanager
def small_disk(folder: Path, size: int) -> Iterator[None]:
    """A disk of that many bytes on a folder. It is unmounted even if something uses it."""
    with _mounted(folder, "-t", "tmpfs", "-o", f"size={size},mode=700", "tmpfs"):
        yield


def fill(file: Path) -> None:
    """Write to a file until there is no room on its disk."""
    with open(file, "ab", buffering=0) as filler:
        try:
            while filler.write(bytes(4096)):
                pass
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise


@contextmanager
def _mounted(folder: Path, *words: str) -> Iterator[None]:
    try:
        mount(*words, str(folder))
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("nothing may be mounted here")
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)
