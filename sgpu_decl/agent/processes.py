"""What Linux knows of processes: identities that survive pid reuse, family trees, and sweeping."""

from __future__ import annotations

import ctypes
import errno
import os
import select
import time

from sgpu_decl.agent.lean import signal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

__all__ = [
    "alive",
    "become_subreaper",
    "boot_id",
    "carriers",
    "descendants",
    "die_with_parent",
    "handles",
    "machine_id",
    "may_signal",
    "start_time",
    "stop_all",
    "tell",
]

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_LONGEST_POLL = 86_400.0  # seconds: poll takes 24 days at most
_libc = ctypes.CDLL(None, use_errno=True)


def become_subreaper() -> None:
    """Make orphaned descendants children of this process instead of init's."""
    if _libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        code = ctypes.get_errno()
        raise OSError(code, f"cannot adopt orphans: {os.strerror(code)}")


def die_with_parent(parent: int, number: int = signal.SIGKILL) -> None:
    """Ask for a signal when the parent dies, and leave at once if it died before the asking."""
    _libc.prctl(_PR_SET_PDEATHSIG, int(number), 0, 0, 0)
    if os.getppid() != parent:
        os._exit(128 + signal.SIGKILL)


def _read(path: str, limit: int = 1 << 20) -> bytes:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        _refuse_to_guess(error)
        return b""
    try:
        return os.read(descriptor, limit)
    except OSError:
        return b""
    finally:
        os.close(descriptor)


def _refuse_to_guess(error: OSError) -> None:
    """Out of descriptors nothing can be seen, which must not look like nothing being there."""
    if error.errno in (errno.EMFILE, errno.ENFILE):
        raise error


def boot_id() -> str:
    return _read("/proc/sys/kernel/random/boot_id").decode().strip()


def machine_id() -> str:
    return _read("/etc/machine-id").decode().strip() or os.uname().nodename


def _stat(pid: int) -> list[bytes]:
    """Return the fields of /proc/PID/stat from the third on: state, ppid, ..."""
    return _read(f"/proc/{pid}/stat").rpartition(b")")[2].split()


def _lives(fields: list[bytes]) -> bool:
    """Say whether it runs: one whose main thread alone has ended looks like a zombie."""
    return len(fields) >= 20 and (fields[0] not in (b"Z", b"X") or int(fields[17]) > 1)


def start_time(pid: int) -> int | None:
    """Return when a process started, in clock ticks since boot; None for the dead and zombies."""
    fields = _stat(pid)
    return int(fields[19]) if _lives(fields) else None


def alive(pid: int, started: int) -> bool:
    """Say whether that very process still lives: the pid with the same start time."""
    return start_time(pid) == started


def cpu_ticks(pid: int) -> int:
    """Return the CPU time that a process used, with its reaped children, in clock ticks."""
    fields = _stat(pid)
    return sum(map(int, fields[11:15])) if len(fields) >= 15 else 0


def descendants(root: int) -> list[int]:
    """Return the living descendants of a process, zombies left out, parents before children."""
    found: list[int] = []
    pending = [root]
    while pending:
        parent = pending.pop()
        for child in _children(parent):
            pending.append(child)
            if _lives(_stat(child)):
                found.append(child)
    return found


def _children(pid: int) -> list[int]:
    try:
        threads = os.listdir(f"/proc/{pid}/task")
    except OSError as error:
        _refuse_to_guess(error)
        return []
    listed = b" ".join(_read(f"/proc/{pid}/task/{thread}/children") for thread in threads)
    return [int(child) for child in listed.split()]


def carriers(cookie: str) -> list[tuple[int, int]]:
    """Return (pid, start time) of the living processes with `SGPU_COOKIE=<cookie>` inherited."""
    wanted = f"SGPU_COOKIE={cookie}".encode()
    found = []
    for name in os.listdir("/proc"):
        if not name.isdigit() or int(name) == os.getpid():
            continue
        started = start_time(int(name))
        if started is None:
            continue
        if wanted in _read(f"/proc/{name}/environ", 4 << 20).split(b"\0"):
            found.append((int(name), started))
    return found


def carries(pid: int, entry: bytes) -> bool:
    """Say whether a process was started with that `NAME=value` in its environment."""
    return entry in _read(f"/proc/{pid}/environ", 4 << 20).split(b"\0")


def handles(pid: int, number: int) -> bool:
    """Say whether a process has a handler for that signal."""
    for line in _read(f"/proc/{pid}/status").splitlines():
        name, _, value = line.partition(b":")
        if name == b"SigCgt":
            return bool(int(value, 16) >> (number - 1) & 1)
    return False


def may_signal(pid: int) -> bool:
    """Say whether we may signal a process: not one that a setuid program made another user's."""
    try:
        os.kill(pid, 0)
    except PermissionError:
        return False
    except ProcessLookupError:
        pass  # it has ended
    return True


def tell(pid: int, started: int | None, number: int) -> bool:
    """Send a signal to that very process through a pidfd; False when it is gone.

    The start time is read after the pidfd is open, so a reused pid is never hit.
    """
    if started is None:
        return False
    try:
        handle = os.pidfd_open(pid)
    except OSError:
        return False
    try:
        if start_time(pid) != started:
            return False
        signal.pidfd_send_signal(handle, number)
    except ProcessLookupError:
        return False
    finally:
        os.close(handle)
    return True


def reap() -> list[int]:
    """Collect every dead child and return which they were; no exit status is wanted."""
    found = []
    try:
        while pid := os.waitpid(-1, os.WNOHANG)[0]:
            found.append(pid)
    except ChildProcessError:
        return found
    return found


def has_children() -> bool:
    """Collect every dead child and say whether any lives on."""
    reap()
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


def stop_all(find: Callable[[], Iterable[int]], grace: float, *, ask: bool = True) -> None:
    """Stop all that `find` returns: TERM, up to `grace` seconds, then KILL until none is found.

    What appears meanwhile (a fork bomb's next generation) is found again and gets the same. What we
    may not signal is left.
    """
    deadline = time.monotonic() + grace
    asked: set[tuple[int, int]] = set()
    while True:
        reap()
        found = filter(may_signal, find())
        members = [(pid, at) for pid in found if (at := start_time(pid)) is not None]
        if not members:
            return
        force = not ask or time.monotonic() >= deadline
        for member in members:
            if force or member not in asked:
                tell(*member, signal.SIGKILL if force else signal.SIGTERM)
        asked.update(members)
        left = 0.2 if force else max(0.0, deadline - time.monotonic())
        _until_one_ends([pid for pid, _ in members], left)


def _until_one_ends(pids: list[int], seconds: float) -> None:
    poller = select.poll()
    handles = []
    try:
        for pid in pids:
            try:
                handles.append(os.pidfd_open(pid))
            except OSError as error:
                if error.errno != errno.ESRCH:
                    break  # out of descriptors: those at hand are enough to wait on
                return
        for handle in handles:
            poller.register(handle, select.POLLIN)
        poller.poll(max(1, int(min(seconds, _LONGEST_POLL) * 1000)))
    finally:
        for handle in handles:
            os.close(handle)
