"""Waiting for slots, first come first served, without a server.

All runs that want the same slots share a folder of locks. Each run takes a numbered ticket, a file
that it keeps locked. It is at the head when all lower tickets are free, and only the head may take
slots, so runs that need several do not block each other. Death frees tickets and slots.

A cleaner of `/tmp` may delete the file of a slot that is held: whoever holds one touches it from
time to time (`Slots.touch`). An empty file is a new one: a run then looks for the holder of an
earlier one.

A gate may keep a slot from a run that has its lock (`gpu_gate`). The head waits for it as for a
lock, and keeps the lock meanwhile.

To wait for a lock, a forked child blocks in flock on a descriptor that it shares with us: when the
child ends, the lock is ours. So waiting takes no CPU time.
"""

from __future__ import annotations

import fcntl
import os

from sgpu_decl.agent.attempt.attempt_files import OUTCOME
from sgpu_decl.agent.attempt.host_record import wait_until_over
from sgpu_decl.agent.system.fast_stdlib import dumps, loads, signal
from sgpu_decl.agent.system.locks import is_at, open_deleted, open_lock, try_lock, wait_until_free
from sgpu_decl.agent.system.processes import die_with_parent

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sgpu_decl.agent.host.gpu_gate import GpuGate
    from sgpu_decl.agent.system.loop import Loop

_AGAIN = 1.0  # seconds before a waiter that died a second time is started again


class Waiters:
    """Forked children that block in our place."""

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._pids: set[int] = set()
        self._delayed: set[str] = set()

    def start(self, block: Callable[[], None], then: Callable[[], None], *keep: int) -> None:
        """Run `block` in a child, and call `then` when it has returned. `keep` are the descriptors
        that it needs. A child that dies is started again."""
        self._start(block, then, keep, 0.0)

    def _start(
        self,
        block: Callable[[], None],
        then: Callable[[], None],
        keep: Sequence[int],
        delay: float,
    ) -> None:
        parent = os.getpid()
        signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 32))
        try:
            pid = os.fork()
        except OSError:
            signal.pthread_sigmask(signal.SIG_SETMASK, ())
            self._later(f"waiter of {id(then)}", block, then, keep)
            return
        if pid == 0:
            try:
                self._loop.close()
                die_with_parent(parent)
                _close_all_but(keep)
                block()
                os._exit(0)
            finally:
                os._exit(1)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        self._pids.add(pid)

        def ended(status: int, _now: int) -> None:
            stopped = pid not in self._pids
            self._pids.discard(pid)
            if status == 0:
                then()
            elif not stopped:
                self._later(f"waiter {pid}", block, then, keep, delay)

        self._loop.watch(pid, ended)

    def _later(
        self,
        name: str,
        block: Callable[[], None],
        then: Callable[[], None],
        keep: Sequence[int],
        delay: float = _AGAIN,
    ) -> None:
        """Start a waiter again that died, or for which no process was left."""

        def again() -> None:
            self._delayed.discard(name)
            self._start(block, then, keep, _AGAIN)

        self._delayed.add(name)
        self._loop.after(name, delay, again)

    def stop(self) -> None:
        """End all waiters."""
        for pid in self._pids:
            os.kill(pid, signal.SIGKILL)
        self._pids.clear()
        for name in self._delayed:
            self._loop.cancel(name)
        self._delayed.clear()


def _close_all_but(keep: Sequence[int]) -> None:
    low = 3
    for descriptor in sorted(keep):
        os.closerange(low, descriptor)
        low = descriptor + 1
    os.closerange(low, 65_536)


def wait_for_ends(
    waiters: Waiters,
    folders: Sequence[str],
    then: Callable[[], None],
    *,
    enough: Callable[[str], bool] = lambda _folder: False,
) -> None:
    """Call `then` once every attempt in these folders has ended, or one for which that is
    `enough`."""

    def block() -> None:
        for folder in folders:
            wait_until_free(os.path.join(folder, "supervisor.lock"))
            if not os.path.exists(os.path.join(folder, OUTCOME)):
                wait_until_free(os.path.join(folder, "guardian.lock"))
                wait_until_over(folder)
            if enough(folder):
                return

    waiters.start(block, then)


class Slots:
    """`need` of the named slots in a lock folder, locked until `release`."""

    on_wait: Callable[[], None] = staticmethod(lambda: None)
    """Called when `kept` changes while slots are waited for."""

    def __init__(
        self, folder: str, names: Sequence[str], need: int, gate: GpuGate | None = None
    ) -> None:
        self._gate = gate
        self._used: dict[str, str] = {}
        self._blocked: dict[str, int] = {}
        self._folder = folder
        self._names = names
        self._need = need
        self._ticket = -1
        self._locks: dict[str, int] = {}
        os.makedirs(folder, exist_ok=True)

    @property
    def names(self) -> tuple[str, ...]:
        """Our slots, in the given order."""
        return tuple(name for name in self._names if name in self._locks)

    @property
    def kept(self) -> tuple[str, ...]:
        """Why the gate keeps slots that are waited for, in words."""
        return tuple(words for name, words in self._used.items() if name in self._blocked)

    def acquire(self, waiters: Waiters, then: Callable[[], None]) -> None:
        """Call `then` when all needed slots are ours."""
        self._waiters, self._then = waiters, then
        self._ticket, earlier = self._take_ticket()
        if not earlier:
            self._look()
        else:
            waiters.start(lambda: self._stand_in_line(earlier), self._look)

    def release(self) -> None:
        """Give ticket and slots back."""
        self._drop_ticket()
        for descriptor in self._locks.values():
            os.close(descriptor)
        self._locks.clear()
        if self._gate is not None:
            self._gate.release()

    def _path(self, name: str) -> str:
        return os.path.join(self._folder, name)

    def _take_ticket(self) -> tuple[int, list[str]]:
        counter = open_lock(self._path("tickets"))
        try:
            fcntl.flock(counter, fcntl.LOCK_EX)
            number = int(os.pread(counter, 20, 0) or b"0") + 1
            os.pwrite(counter, b"%d" % number, 0)
            earlier = [
                name
                for name in sorted(os.listdir(self._folder), reverse=True)
                if name.startswith("ticket-") and self._stale(name) is False
            ]
            self._ticket_path = self._path(f"ticket-{number:012d}")
            ticket = open_lock(self._ticket_path)
            fcntl.flock(ticket, fcntl.LOCK_EX)
            return ticket, earlier
        finally:
            os.close(counter)

    def _stale(self, name: str) -> bool:
        """Remove the ticket of a run that is gone; the caller holds the lock of the counter."""
        descriptor = os.open(self._path(name), os.O_RDWR | os.O_CLOEXEC)
        try:
            if try_lock(descriptor):
                os.unlink(self._path(name))
                return True
            return False
        finally:
            os.close(descriptor)

    def _stand_in_line(self, earlier: Sequence[str]) -> None:
        for name in earlier:
            wait_until_free(self._path(name))

    def _look(self) -> None:
        """Ask the gate which slots others use, in a child, since the answer may take seconds."""
        gate = self._gate
        if gate is None:
            self._head()
            return
        reader, writer = os.pipe2(os.O_CLOEXEC)

        def answered() -> None:
            os.close(writer)
            with open(reader, "rb") as pipe:
                self._used = loads(pipe.read() or b"{}")
            self._head()

        def ask() -> None:
            with open(writer, "wb", closefd=False) as pipe:
                pipe.write(dumps(gate.used(self._names)).encode())

        self._waiters.start(ask, answered, writer)

    def _head(self) -> None:
        busy: list[tuple[str, int]] = []
        for name in self._names:
            if len(self._locks) == self._need:
                break
            self._try(name, busy)
        self._blocked = dict(busy)
        if len(self._locks) == self._need:
            self._complete()
            return
        for name in self._blocked:
            self._await(name)
        self.on_wait()

    def _await(self, name: str) -> None:
        descriptor, gate = self._blocked[name], self._gate

        def block() -> None:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            if gate is not None:
                gate.wait(name)

        self._waiters.start(block, lambda: self._freed(name), descriptor)

    def _try(self, name: str, busy: list[tuple[str, int]]) -> None:
        """Take a slot, or add it to those that are `busy`, with the file whose lock is awaited."""
        path = self._path(f"slot-{name}")
        while True:
            descriptor = open_lock(path)
            if not try_lock(descriptor):
                busy.append((name, descriptor))
                return
            if is_at(descriptor, path):
                break
            os.close(descriptor)
        deleted = open_deleted(path) if os.fstat(descriptor).st_size == 0 else None
        if deleted is not None:
            os.close(descriptor)
            busy.append((name, deleted))
            return
        if self._gate is not None and (name in self._used or not self._gate.take(name)):
            busy.append((name, descriptor))
            return
        os.pwrite(descriptor, b"1", 0)
        self._locks[name] = descriptor

    def _freed(self, name: str) -> None:
        """A lock that was awaited is ours. Its file may not be that of the slot any more."""
        if name not in self._blocked:
            return
        os.close(self._blocked.pop(name))
        self._used.pop(name, None)
        busy: list[tuple[str, int]] = []
        self._try(name, busy)
        if len(self._locks) == self._need:
            self._waiters.stop()
            self._complete()
            return
        for _, descriptor in busy:
            self._blocked[name] = descriptor
            self._await(name)
        self.on_wait()

    def touch(self) -> None:
        """Keep the files of our slots from cleaners, which delete what is old."""
        for descriptor in self._locks.values():
            os.utime(descriptor)
        if self._gate is not None:
            self._gate.touch()

    def _complete(self) -> None:
        for descriptor in self._blocked.values():
            os.close(descriptor)
        self._blocked = {}
        self._drop_ticket()
        self._then()

    def _drop_ticket(self) -> None:
        if self._ticket >= 0:
            # Others may wait for the file; the next run that takes a ticket removes it.
            os.close(self._ticket)
            self._ticket = -1
