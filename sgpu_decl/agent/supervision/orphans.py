"""The end of processes that ranks left: a sweep by the supervisor, and a reaper that outlives it.

The reaper ends the ranks if guardian and supervisor are both killed, on kernels that do not do
that. On other kernels, ranks die with their supervisor by their parent-death signal.
"""

from __future__ import annotations

import os

from sgpu_decl.agent.attempt import attempt_files
from sgpu_decl.agent.system import processes
from sgpu_decl.agent.system.fast_stdlib import signal
from sgpu_decl.agent.system.kernel_features import PARENT_DEATH_SIGNAL, available

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from sgpu_decl.agent.attempt.attempt_record import AttemptRecord
    from sgpu_decl.agent.system.loop import Loop
    from sgpu_decl.agent.system.process_tree import ProcessTree

_GRACE = 5.0
_AGAIN = 0.01
_BLIND = 0.1  # while no descriptor is left, and if orphans are not adopted


class Sweep:
    """Stops the processes that ranks left: children, orphans and daemons.

    Calls `on_clean` once nothing is left of the process tree, except what `apart()` names and
    the processes of other users (of setuid programs).
    """

    on_clean: Callable[[], None]

    def __init__(
        self, tree: ProcessTree, loop: Loop, record: AttemptRecord, apart: Callable[[], set[int]]
    ) -> None:
        self._tree = tree
        self._loop = loop
        self._record = record
        self._apart = apart
        self._termed: set[int] = set()
        self._force = False
        self.active = False

    def remains(self) -> list[int]:
        """Return what is left.

        Raises:
            OSError: no descriptor is left to look with.
        """
        apart = self._apart()
        return [pid for pid in self._tree.pids() if pid not in apart]

    def begin(self, grace: float, late: Callable[[], None]) -> None:
        """Send TERM to all that is left; `late` is called after the grace, of 5 s at most."""
        self.active, self._force, self._termed = True, False, set()
        self._loop.after("kill", min(grace, _GRACE), late)
        self._step()

    def force(self) -> None:
        """Kill what is left now."""
        if self.active:
            self._force = True
            self._step()

    def _step(self) -> None:
        if not self.active:
            return
        try:
            pids = list(filter(processes.may_signal, self.remains()))
        except OSError:
            self._loop.after("sweep", _BLIND, self._step)
            return
        if not pids:
            self.active = False
            self._loop.cancel("kill")
            self._loop.cancel("sweep")
            self.on_clean()
            return
        if not self._termed:
            self._record.event("sweep", left=len(pids))
        for pid in pids:
            if self._force or pid not in self._termed:
                number = signal.SIGKILL if self._force else signal.SIGTERM
                processes.send_signal(pid, processes.start_time(pid), number)
        self._termed.update(pids)
        # The end of an orphan brings SIGCHLD; the end of a process whose parent lives does not, so
        # look again soon. A look at all processes takes longer.
        self._loop.after("sweep", _AGAIN if self._tree.adopts else _BLIND, self._step)


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
            _kill_ranks(folder, marks)
    finally:
        os._exit(0)


def rank_sessions(folder: str) -> set[int]:
    """Return the sessions of the ranks that ran when the status was last written."""
    status = attempt_files.read_json(folder, attempt_files.STATUS) or {}
    return {rank["pid"] for rank in status.get("ranks", ()) if rank.get("pid")}


def _kill_ranks(folder: str, marks: frozenset[bytes]) -> None:
    sessions = rank_sessions(folder)
    processes.stop_all(lambda: processes.related(os.getpid(), sessions, [marks]), 0.0, ask=False)
