"""The lock of a build folder: one process at a time builds in it.

The lock is a `flock` on a file beside the folder. Every process that has a copy of the descriptor
holds it: if a builder is killed, the next one waits for its child processes, and clears the folder.
"""

import contextlib
import fcntl
import os
import shutil
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from sgpu_decl.agent.system.safe_files import private_folder
from sgpu_decl.atomic_files import wait_for_lock
from sgpu_decl.model.step_progress import Progress

_LOCK = ".lock"


@contextlib.contextmanager
def build_folder(folder: Path, progress: Progress) -> Iterator[int]:
    """Wait for the lock of `folder` and create it empty; it is removed in the end. `progress` is
    told `queueing`, in seconds, while another process builds there.

    Yields:
        The descriptor that holds the lock, for child processes.

    Raises:
        OSError: the folder cannot be made.
    """
    private_folder(folder.parent)
    path = folder.with_name(folder.name + _LOCK)
    descriptor = _locked(path, partial(progress.advance, "queueing", total=0))
    try:
        _remove(folder)
        folder.mkdir(mode=0o700)
        yield descriptor
    finally:
        _remove(folder)
        path.unlink(missing_ok=True)
        os.close(descriptor)


def builds_in(store: Path) -> Path:
    """The folder of build folders of a store of environments."""
    return store / "building"


def remove_leftovers(parent: Path) -> None:
    """Remove the build folders of killed builders; those in use stay."""
    for path in parent.glob(f"*{_LOCK}"):
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            continue
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            continue
        else:
            if _is_there(descriptor, path):
                _remove(path.with_name(path.name.removesuffix(_LOCK)))
                path.unlink(missing_ok=True)
        finally:
            os.close(descriptor)


def _locked(path: Path, waited: Callable[[int], object]) -> int:
    """The holder removes the lock file, so a waiting process may lock a removed file: it tries
    again."""
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            wait_for_lock(descriptor, fcntl.LOCK_EX, waited)
            if _is_there(descriptor, path):
                return descriptor
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)


def _is_there(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat(path))
    except FileNotFoundError:
        return False


def _remove(folder: Path) -> None:
    with contextlib.suppress(FileNotFoundError):
        shutil.rmtree(folder)
