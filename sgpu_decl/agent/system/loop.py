"""One epoll over pidfds, signals and deadlines; between events the process sleeps."""

from __future__ import annotations

import errno
import os
import select
import time

from sgpu_decl.agent.system.fast_stdlib import signal
from sgpu_decl.agent.system.processes import open_process

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

HANDLED = (
    signal.SIGTERM,
    signal.SIGINT,
    signal.SIGCHLD,
    signal.SIGUSR1,
    signal.SIGUSR2,
    signal.SIGWINCH,
    signal.SIGIO,
)

_LONGEST = 86_400.0  # seconds: epoll takes 24 days at most, and a timeout may be longer


def _woken(_number: int, _frame: object) -> None:
    """Do nothing: the wakeup descriptor carries the number to the loop."""


class Loop:
    """Calls back when a child ends, a descriptor is ready, a signal comes, or a time is reached.

    Children are reported in the order of their deaths, which is the order of epoll's ready list. If
    the kernel has no pidfd, those that died since the last turn are reported in no order.
    """

    def __init__(self, on_signal: Callable[[int], None]) -> None:
        self._on_signal = on_signal
        self._epoll = select.epoll()
        self._readers: dict[int, Callable[[], None]] = {}
        self._children: dict[int, tuple[int, Callable[[int, int], None]]] = {}
        self._timers: dict[str, tuple[int, Callable[[], None]]] = {}
        self._orphans: dict[int, tuple[int, int]] | None = None
        self.peak = 0  # bytes of memory: of the child whose end is being reported
        self._wakeup, self._writer = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self.read(self._wakeup, self._signalled)
        signal.set_wakeup_fd(self._writer, warn_on_full_buffer=False)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        for number in HANDLED:
            signal.signal(number, _woken)

    def read(self, descriptor: int, ready: Callable[[], None]) -> None:
        """Call `ready` whenever the descriptor can be read."""
        self._readers[descriptor] = ready
        self._epoll.register(descriptor, select.EPOLLIN)

    def write(self, descriptor: int, ready: Callable[[], None]) -> None:
        """Call `ready` whenever the descriptor can be written to."""
        self._readers[descriptor] = ready
        self._epoll.register(descriptor, select.EPOLLOUT)

    def forget(self, descriptor: int) -> None:
        """Stop watching a descriptor and close it."""
        if self._readers.pop(descriptor, None) is not None:
            self._epoll.unregister(descriptor)
            os.close(descriptor)

    def watch(self, pid: int, ended: Callable[[int, int], None]) -> None:
        """Call `ended(wait status, monotonic ns)` once the child has died; it is reaped by then."""
        if self._orphans and pid in self._orphans:
            (status, peak), now = self._orphans.pop(pid), time.monotonic_ns()
            self.at(f"ended {pid}", now, lambda: self._report(ended, status, now, peak))
            return
        try:
            handle = open_process(pid)
        except OSError as error:
            if error.errno not in (errno.EMFILE, errno.ENFILE):
                raise
            handle = -1  # out of descriptors
        self._children[pid] = (handle, ended)
        if handle >= 0:  # else SIGCHLD reports its end
            self._readers[handle] = lambda: self._ended(pid)
            self._epoll.register(handle, select.EPOLLIN)

    def hold_orphans(self) -> None:
        """Keep how unknown children ended from now on: some of them may be watched soon."""
        self._orphans = {}

    def release_orphans(self) -> None:
        """Forget how unknown children end, as before."""
        self._orphans = None

    def at(self, name: str, monotonic_ns: int, due: Callable[[], None]) -> None:
        """Call `due` once that time is reached; a second timer of the same name replaces it."""
        self._timers[name] = (monotonic_ns, due)

    def after(self, name: str, seconds: float, due: Callable[[], None]) -> None:
        """Call `due` after that many seconds."""
        self.at(name, time.monotonic_ns() + int(seconds * 1e9), due)

    def cancel(self, name: str) -> None:
        """Drop a timer, if it is set."""
        self._timers.pop(name, None)

    def turn(self) -> None:
        """Wait for the next events and report them."""
        timeout = -1.0
        if self._timers:
            first = min(when for when, _ in self._timers.values())
            timeout = min(max(0.0, (first - time.monotonic_ns()) / 1e9), _LONGEST)
        batch = [
            (descriptor, self._readers[descriptor]) for descriptor, _ in self._epoll.poll(timeout)
        ]
        # Signals last: SIGCHLD finds children in no order, pidfds are in the order of deaths.
        batch.sort(key=lambda event: event[0] == self._wakeup)
        for descriptor, ready in batch:
            # An earlier callback may have closed it, and its number may be in use again.
            if self._readers.get(descriptor) is ready:
                ready()
        now = time.monotonic_ns()
        for name, (when, due) in sorted(self._timers.items(), key=lambda item: item[1][0]):
            if when <= now and self._timers.get(name) == (when, due):
                del self._timers[name]
                due()

    def close(self) -> None:
        """Leave no trace in a forked child: no wakeup pipe, default signals, nothing blocked."""
        signal.set_wakeup_fd(-1)
        for number in (*HANDLED, signal.SIGHUP, signal.SIGPIPE, signal.SIGXFSZ):
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())

    def _signalled(self) -> None:
        numbers = os.read(self._wakeup, 4096)
        for number in numbers:
            if number != signal.SIGCHLD:
                self._on_signal(number)
        if signal.SIGCHLD in numbers:
            self._collect()

    def _collect(self) -> None:
        """Reap adopted orphans, and report the end of watched children."""
        while True:
            try:
                child = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            except ChildProcessError:
                return
            if child is None:
                return
            if child.si_pid in self._children:
                self._ended(child.si_pid)
            else:
                _, status, usage = os.wait4(child.si_pid, 0)
                if self._orphans is not None:
                    self._orphans[child.si_pid] = status, usage.ru_maxrss * 1024

    def _ended(self, pid: int) -> None:
        now = time.monotonic_ns()
        if pid not in self._children:
            return
        handle, ended = self._children[pid]
        reaped, status, usage = os.wait4(pid, os.WNOHANG)
        if reaped == 0:
            return
        del self._children[pid]
        if handle >= 0:
            self.forget(handle)
        self._report(ended, status, now, usage.ru_maxrss * 1024)

    def _report(self, ended: Callable[[int, int], None], status: int, now: int, peak: int) -> None:
        self.peak = peak
        ended(status, now)
