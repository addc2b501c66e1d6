"""The processes of an attempt: those that ranks started, even if their parents have ended."""

from __future__ import annotations

import os

from sgpu_decl.agent.system import processes
from sgpu_decl.agent.system.kernel_features import CHILD_SUBREAPER, available


def rank_marks(token: str, node: int) -> frozenset[bytes]:
    """Return the variables of the ranks of one node; a machine may run several nodes."""
    return frozenset({f"SGPU_COOKIE={token}".encode(), b"NODE_RANK=%d" % node})


class ProcessTree:
    """All living processes that come from this one.

    This process adopts their orphans, so they are its descendants. If the kernel does not allow
    that, they are also found by their environment, and by the sessions of this process's children.
    `marks` are sets of `NAME=value`: a process that has all of one set belongs to the tree.
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
        """Note that the leader has ended, and forget an empty session: it may be reused."""
        if leader in self._sessions and not processes.in_sessions({leader}):
            self._sessions.discard(leader)

    def pids(self) -> list[int]:
        """Return them, parents before children.

        Raises:
            OSError: no descriptor is left to look with.
        """
        own = os.getpid()
        if self.adopts:
            return processes.descendants(own)
        return processes.related(own, self._sessions, self._marks)
