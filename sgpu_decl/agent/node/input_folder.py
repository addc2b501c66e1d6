"""The folder on a machine with the outputs of other runs that ranks read (`${run.NAME.output}`),
where no folder of all nodes can have them.

Ranks were told the folder at the launch, so it has the same path on each node. Nodes of a run that
share a machine, as emulated ones do, share the folder: the first fills it, and the last deletes it.
"""

from __future__ import annotations

import fcntl
import glob
import os
import shutil
from contextlib import suppress

from sgpu_decl.agent.system.locks import try_lock

_FOLDERS = "/tmp/sgpu-inputs-"  # noqa: S108  made for this user alone
_WHOLE = ".whole"
_OPEN = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def folder_of_launch(token: str) -> str:
    """The path of the folder of a launch, on all nodes."""
    return f"{_FOLDERS}{token[-16:]}"


def delete_unused() -> None:
    """Delete such folders of this user that no node uses: those of nodes that were killed. A kernel
    without flock does not say which these are."""
    for path in glob.glob(f"{glob.escape(_FOLDERS)}*"):
        with suppress(OSError):  # it is not ours, or another process has just deleted it
            lock = os.open(path, _OPEN)
            try:
                if os.fstat(lock).st_uid == os.getuid() and try_lock(lock):
                    shutil.rmtree(path, ignore_errors=True)
            finally:
                os.close(lock)


class InputFolder:
    """The folder `path`, as one node uses it. `lock` is a descriptor, which a child may inherit;
    None if the node does not use the folder."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.lock: int | None = None

    def take(self) -> bool:
        """Use the folder, unless another node of this machine is filling it; return whether this
        node has to fill it, which is empty then.

        Raises:
            OSError: it cannot be made, or belongs to somebody else.
        """
        with suppress(FileExistsError):
            os.mkdir(self.path, 0o700)
        try:
            owner = os.lstat(self.path).st_uid
            if owner != os.getuid():
                raise PermissionError(f"it belongs to user {owner}")
            lock = os.open(self.path, _OPEN)
        except FileNotFoundError:
            return False  # another node has just deleted it
        fills = _is_ours(lock)
        if (fills or _is_shared(lock)) and self._is_there(lock, whole=not fills):
            self.lock = lock
            if fills:
                self._clear()
            return fills
        os.close(lock)
        return False

    def finish(self) -> None:
        """This node has filled it. Raises OSError."""
        assert self.lock is not None  # noqa: S101  `take` has it
        with open(os.path.join(self.path, _WHOLE), "wb"):
            pass
        with suppress(OSError):  # a kernel without flock: see `_is_ours`
            fcntl.flock(self.lock, fcntl.LOCK_SH)

    def release(self) -> None:
        """The ranks of this node have ended. The last node deletes the folder."""
        if self.lock is None:
            return
        if _is_ours(self.lock):
            shutil.rmtree(self.path, ignore_errors=True)
        os.close(self.lock)
        self.lock = None

    def _is_there(self, lock: int, *, whole: bool) -> bool:
        """Whether the folder that was locked was not deleted meanwhile, and is filled."""
        try:
            there = os.path.samestat(os.fstat(lock), os.stat(self.path))
        except FileNotFoundError:
            return False
        return there and (not whole or os.path.exists(os.path.join(self.path, _WHOLE)))

    def _clear(self) -> None:
        """Delete what a node left that was killed."""
        for left in os.listdir(self.path):
            path = os.path.join(self.path, left)
            if os.path.isdir(path) and not os.path.islink(path):
                shutil.rmtree(path)
            else:
                os.unlink(path)


def _is_ours(lock: int) -> bool:
    """Whether no other node uses the folder. A kernel without flock does not say: then this node is
    alone, as nodes of platforms are."""
    try:
        return try_lock(lock)
    except OSError:
        return True


def _is_shared(lock: int) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
