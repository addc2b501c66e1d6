"""Being asked to stop, and whom to pass that on to."""

from __future__ import annotations

import os
import select
import subprocess

from sgpu_decl.agent import processes
from sgpu_decl.agent.fast_stdlib import signal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["StopRequest"]

_ASKING = (signal.SIGTERM, signal.SIGINT)


class StopRequest:
    """Whether this node was asked to stop; the process that works for it at the time is asked, too.

    Once that has ended there is nothing left to stop: what it left is brought back.
    """

    def __init__(self) -> None:
        self.asked = False
        self._working: subprocess.Popen[bytes] | None = None
        self._woken, self._wake = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        for number in _ASKING:
            signal.signal(number, self._heard)

    def start(
        self, argv: Sequence[str], *, output: int, holds: bool = False
    ) -> subprocess.Popen[bytes]:
        """Start a process that is asked to stop when this one is, or dies.

        Args:
            output: a descriptor for its stdout and stderr, or `subprocess.PIPE` for its stdout.
            holds: it begins with these signals blocked, and unblocks them when it can handle them.

        Raises:
            OSError: it cannot be started.
        """
        parent = os.getpid()

        def prepare() -> None:
            processes.die_with_parent(parent, signal.SIGTERM)
            if not holds:
                signal.pthread_sigmask(signal.SIG_UNBLOCK, _ASKING)

        signal.pthread_sigmask(signal.SIG_BLOCK, _ASKING)
        try:
            self._working = subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=None if output == subprocess.PIPE else subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=prepare,
            )
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, _ASKING)
        return self._working

    def ended(self) -> None:
        """What was started has ended: nobody is to be told any more."""
        self._working = None

    def wait(self, seconds: float) -> None:
        """Wait for that long, or until this node is asked to stop."""
        select.select([self._woken], [], [], seconds)

    def _heard(self, number: int, _frame: object) -> None:
        if not self.asked:
            self.asked = True
            os.write(self._wake, b"!")
        if self._working is not None:
            self._working.send_signal(number)
