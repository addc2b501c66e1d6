"""Outputs of other runs that ranks of a node read (`${run.NAME.output}`), where no machine can copy
them for all nodes before these start.

Ranks were told the folder at the launch, so it has the same path on each node. Nodes of a run that
share a machine, as emulated ones do, share the folder: the first fills it, and the last deletes it.
"""

from __future__ import annotations

import fcntl
import os
import shutil
from contextlib import suppress

from sgpu_decl.agent.locks import try_lock
from sgpu_decl.agent.node.log_forwarding import say
from sgpu_decl.agent.node.upstream_output import UpstreamFailed, bring_upstream

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from sgpu_decl.agent.node.stop_request import StopRequest

__all__ = ["NodeInputs"]

_WHOLE = ".whole"
_OPEN = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_LOOK = 0.1  # seconds between two looks at what another node of this machine fills


class NodeInputs:
    """The inputs of one run on this node.

    Args:
        back: the folder that nodes of the run upload to. Launch folders are named relative to its
            own: nodes may have them at another path than the machine of apply.
    """

    def __init__(self, back: str, stopping: StopRequest) -> None:
        self._launch = os.path.dirname(back)
        self._back = os.path.basename(back)
        self._stopping = stopping
        self._folder = ""
        self._lock: int | None = None

    def bring(self, inputs: Sequence[Sequence[str]]) -> tuple[str, str] | None:
        """Have all inputs here; if that fails, return the class of the failure and the reason. If
        the node was asked to stop meanwhile, there may be none.

        Args:
            inputs: of each the name of the attempt, its launch folder, how many nodes it had, and
                the folder that ranks read. All these are in one folder.
        """
        self._folder = os.path.dirname(inputs[0][3])
        try:
            while not self._stopping.asked:
                if self._take():
                    self._fill(inputs)
                if self._lock is not None:
                    return None
                self._stopping.wait(_LOOK)
        except UpstreamFailed as error:
            problem = error.failure, error.summary
        except OSError as error:
            problem = "staging_failed", f"`{self._folder}` cannot be made on this node: {error}"
        else:
            return None
        self.release()  # another node of this machine may get further
        return problem

    def release(self) -> None:
        """The ranks of this node have ended."""
        if self._lock is None:
            return
        if _is_ours(self._lock):
            shutil.rmtree(self._folder, ignore_errors=True)
        os.close(self._lock)
        self._lock = None

    def _take(self) -> bool:
        """Take the lock of the folder unless another node keeps it; True if this node has to fill
        it."""
        with suppress(FileExistsError):
            os.mkdir(self._folder, 0o700)
        try:
            owner = os.lstat(self._folder).st_uid
            if owner != os.getuid():
                raise PermissionError(f"it belongs to user {owner}")
            lock = os.open(self._folder, _OPEN)
        except FileNotFoundError:
            return False  # another node has just deleted it
        fills = _is_ours(lock)
        if (fills or _is_shared(lock)) and self._is_there(lock, whole=not fills):
            self._lock = lock
            return fills
        os.close(lock)
        return False

    def _is_there(self, lock: int, *, whole: bool) -> bool:
        """Whether the folder that was locked was not deleted meanwhile, and is filled."""
        try:
            there = os.path.samestat(os.fstat(lock), os.stat(self._folder))
        except FileNotFoundError:
            return False
        return there and (not whole or os.path.exists(os.path.join(self._folder, _WHOLE)))

    def _fill(self, inputs: Sequence[Sequence[str]]) -> None:
        """Copy all inputs, until the node is asked to stop. Raises UpstreamFailed, OSError."""
        assert self._lock is not None  # noqa: S101  `_take` has it
        for left in os.listdir(self._folder):  # of a node that was killed
            path = os.path.join(self._folder, left)
            if os.path.isdir(path):
                shutil.rmtree(path)
            else:
                os.unlink(path)
        for name, launch, nodes, target in inputs:
            say(f"copying the output of {name}")
            folder = os.path.normpath(os.path.join(self._launch, launch))
            if not bring_upstream(
                name,
                os.path.join(folder, self._back),
                target,
                nodes=int(nodes),
                stopped=lambda: self._stopping.asked,
                wait=self._stopping.wait,
                say=say,
            ):
                return
        with open(os.path.join(self._folder, _WHOLE), "wb"):
            pass
        with suppress(OSError):  # a kernel without flock: see `_is_ours`
            fcntl.flock(self._lock, fcntl.LOCK_SH)


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
