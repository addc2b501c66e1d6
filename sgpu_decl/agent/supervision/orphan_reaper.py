"""Ends the ranks if guardian and supervisor are both killed, on kernels that do not do that.

On other kernels, ranks die with their supervisor by their parent-death signal.
"""

from __future__ import annotations

import os

from sgpu_decl.agent.attempt import attempt_files
from sgpu_decl.agent.system import processes
from sgpu_decl.agent.system.fast_stdlib import signal
from sgpu_decl.agent.system.kernel_features import PARENT_DEATH_SIGNAL, available

__all__ = ["rank_sessions", "start_reaper"]


def start_reaper(folder: str, marks: frozenset[bytes]) -> None:
    """Start a process that waits for the end of this one and its forks, and then kills the ranks
    of this node that are left, known by their `marks`. It holds no locks.

    Call this before orphans are adopted, and once nobody else can run the attempt.

    Raises:
        OSError: there is no process or no descriptor left.
    """
    if available(PARENT_DEATH_SIGNAL):
        return
    watched, _open = os.pipe2(os.O_CLOEXEC)  # death alone closes `_open`
    child = os.fork()
    if child:
        os.close(watched)
        os.waitpid(child, 0)
        return
    try:
        os.setsid()
        if os.fork() == 0:
            os.dup2(watched, 0)
            os.closerange(1, 65_536)
            for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
                signal.signal(number, signal.SIG_IGN)
            os.chdir("/")
            os.read(0, 1)
            _kill(folder, marks)
    finally:
        os._exit(0)


def rank_sessions(folder: str) -> set[int]:
    """Return the sessions of the ranks that ran when the status was last written."""
    status = attempt_files.read_json(folder, attempt_files.STATUS) or {}
    return {rank["pid"] for rank in status.get("ranks", ()) if rank.get("pid")}


def _kill(folder: str, marks: frozenset[bytes]) -> None:
    sessions = rank_sessions(folder)
    processes.stop_all(lambda: processes.related(os.getpid(), sessions, [marks]), 0.0, ask=False)
