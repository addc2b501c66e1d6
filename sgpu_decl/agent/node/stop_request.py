"""A request to stop this node, which is passed on to its child process."""

from __future__ import annotations

import fcntl
import os
import select
import subprocess

from sgpu_decl.agent.system import processes
from sgpu_decl.agent.system.fast_stdlib import signal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_SIGNALS = (signal.SIGTERM, signal.SIGINT)


class StopRequest:
    """Whether this node was `asked` to stop. Its child process gets the same signal.

    Once that has ended, nothing is left to stop, and its files are uploaded.
    """

    def __init__(self) -> None:
        self.asked = False
        self._child: subprocess.Popen[bytes] | None = None
        self._wakeup, self._wake = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        for number in _SIGNALS:
            signal.signal(number, self._on_signal)

    def watch_pipe(self, descriptor: int) -> None:
        """Stop once the other end of a pipe is closed, by its owner's death too. (A parent-death
        signal would follow the thread that started this process, not its process.)

        The kernel sends SIGTERM for that: see F_SETSIG and O_ASYNC in fcntl(2).
        """
        fcntl.fcntl(descriptor, fcntl.F_SETOWN, os.getpid())
        fcntl.fcntl(descriptor, fcntl.F_SETSIG, signal.SIGTERM)
        flags = fcntl.fcntl(descriptor, fcntl.F_GETFL)
        fcntl.fcntl(descriptor, fcntl.F_SETFL, flags | os.O_ASYNC)
        poller = select.poll()
        poller.register(descriptor, select.POLLHUP)
        if poller.poll(0):  # it was closed before
            os.kill(os.getpid(), signal.SIGTERM)

    def start(
        self,
        argv: Sequence[str],
        *,
        output: int,
        environment: Mapping[str, str] | None = None,
        keep: Sequence[int] = (),
        holds: bool = False,
    ) -> subprocess.Popen[bytes]:
        """Start a process that gets SIGTERM when this one does, or dies.

        Args:
            output: a descriptor for its stdout and stderr, or `subprocess.PIPE` for its stdout.
            environment: its variables; None for those of this process.
            keep: descriptors that it inherits.
            holds: it starts with signals blocked, and unblocks them when it can handle them.

        Raises:
            OSError: it cannot be started.
        """
        parent = os.getpid()

        def prepare() -> None:
            processes.die_with_parent(parent, signal.SIGTERM)
            if not holds:
                signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)

        signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
        try:
            self._child = subprocess.Popen(
                argv,
                env=environment,
                pass_fds=keep,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=None if output == subprocess.PIPE else subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=prepare,
            )
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
        return self._child

    def ended(self) -> None:
        """The process has ended, and gets no signals any more."""
        self._child = None

    def wait(self, seconds: float) -> None:
        """Wait for that long, or until this node is asked to stop."""
        select.select([self._wakeup], [], [], seconds)

    def _on_signal(self, number: int, _frame: object) -> None:
        if not self.asked:
            self.asked = True
            os.write(self._wake, b"!")
        if self._child is not None:
            self._child.send_signal(number)
