"""The processes of an attempt: what the ranks started, whatever became of its parents."""

from __future__ import annotations

import os

from sgpu_decl.agent import processes
from sgpu_decl.agent.kernel_features import CHILD_SUBREAPER, available

__all__ = ["ProcessTree", "rank_marks"]


def rank_marks(token: str, node: int) -> frozenset[bytes]:
    """Return what the ranks of one node have in their environment, and nobody else on a machine
    that may have several nodes."""
    return frozenset({f"SGPU_COOKIE={token}".encode(), b"NODE_RANK=%d" % node})


class ProcessTree:
    """All living processes that come from this one.

    This process adopts their orphans, so they are its descendants. If the kernel lets it adopt
    none, they are also found by their environment, and by the sessions of those that this process
    started. `marks` are sets of `NAME=value`: whoever has all of one belongs to the tree.
    """

    def __init__(self, *marks: frozenset[bytes]) -> None:
        self._marks = marks
        self._sessions: set[int] = set()
        self.adopts = available(CHILD_SUBREAPER)

    def start(self, leader: int) -> None:
        """Note that a process of this number leads a session of the tree."""
        if not self.adopts:
            self._sessions.add(leader)

    def end(self, leader: int) -> None:
        """Note that the leader has ended. The number of a session that nobody is left in may be
        another's soon."""
        if leader in self._sessions and not processes.in_sessions({leader}):
            self._sessions.discard(leader)

    def pids(self) -> list[int]:
        """Return them, parents before children.

        Raises:
            OSError: there is no descriptor to look with.
        """
        own = os.getpid()
        if self.adopts:
            return processes.descendants(own)
        return processes.related(own, self._sessions, self._marks)
