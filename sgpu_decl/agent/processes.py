"""What Linux knows of processes: identities that survive pid reuse, family trees, and sweeping."""

from __future__ import annotations

import errno
import math
import os
import select
import time

from sgpu_decl.agent.fast_stdlib import signal
from sgpu_decl.agent.kernel_features import (
    CHILD_SUBREAPER,
    PARENT_DEATH_SIGNAL,
    PIDFD_OPEN,
    PIDFD_SEND_SIGNAL,
    PR_SET_CHILD_SUBREAPER,
    PR_SET_PDEATHSIG,
    PROC_CHILDREN,
    available,
    prctl,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence

__all__ = [
    "alive",
    "become_subreaper",
    "boot_id",
    "carriers",
    "carriers_by_cookie",
    "descendants",
    "die_with_parent",
    "handles",
    "in_sessions",
    "machine_id",
    "may_signal",
    "open_process",
    "related",
    "start_time",
    "stop_all",
    "tell",
    "until_one_ends",
    "variables",
]

_LONGEST_POLL = 86_400.0  # seconds: poll takes 24 days at most
_PAUSE = 0.01  # seconds between two looks at processes that tell nobody of their end

# Of pidfd_open(2): there is no such process, or the number is that of a thread by now.
_GONE = frozenset({errno.ESRCH, errno.EINVAL, errno.ENOENT})


def become_subreaper() -> None:
    """Make orphaned descendants children of this process instead of init's, if the kernel does
    that: see `ProcessTree`."""
    if available(CHILD_SUBREAPER):
        prctl(PR_SET_CHILD_SUBREAPER, 1)


def die_with_parent(parent: int, number: int = signal.SIGKILL) -> None:
    """Ask for a signal when the parent dies, and leave at once if it died before the asking.

    If the kernel sends none, the end of a parent is noticed by the process above it alone.
    """
    if available(PARENT_DEATH_SIGNAL):
        prctl(PR_SET_PDEATHSIG, int(number))
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
    if not available(PROC_CHILDREN):
        return related(root)
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


def _table() -> dict[int, tuple[int, int]]:
    """Return the parent and the session of every living process."""
    found = {}
    for name in os.listdir("/proc"):
        if name.isdigit() and _lives(fields := _stat(int(name))):
            found[int(name)] = int(fields[1]), int(fields[3])
    return found


def in_sessions(sessions: Collection[int]) -> list[int]:
    """Return the living processes of these sessions."""
    return [pid for pid, (_, session) in _table().items() if session in sessions]


def related(
    root: int, sessions: Collection[int] = (), marks: Collection[frozenset[bytes]] = ()
) -> list[int]:
    """Return the living processes that descend from `root`, are in one of the sessions, or were
    started with all `NAME=value` of one of the `marks`; with all that descend from them, parents
    before children. `root` is none of them."""
    table = _table()
    children: dict[int, list[int]] = {}
    for pid, (parent, _) in table.items():
        children.setdefault(parent, []).append(pid)
    pending = children.get(root, []) + [
        pid
        for pid, (_, session) in table.items()
        if session in sessions or (marks and _is_marked(pid, marks))
    ]
    found = {root: None}
    while pending:
        pid = pending.pop()
        if pid not in found:
            found[pid] = None
            pending += children.get(pid, ())
    del found[root]
    return list(found)


def _is_marked(pid: int, marks: Collection[frozenset[bytes]]) -> bool:
    environment = set(_environment(pid))
    return any(mark <= environment for mark in marks)


def _environment(pid: int) -> list[bytes]:
    """Return the `NAME=value` that a process was started with. If its main thread has ended, any
    other thread tells."""
    found = _read(f"/proc/{pid}/environ", 4 << 20)
    if not found and _stat(pid)[:1] == [b"Z"]:
        try:
            threads = os.listdir(f"/proc/{pid}/task")
        except FileNotFoundError:
            return []
        for thread in threads:
            found = found or _read(f"/proc/{pid}/task/{thread}/environ", 4 << 20)
    return found.split(b"\0")


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
        if wanted in _environment(int(name)):
            found.append((int(name), started))
    return found


def carriers_by_cookie(cookies: frozenset[str]) -> dict[str, list[int]]:
    """Return the living processes that inherited one of these cookies, by cookie, from one pass
    over all processes."""
    wanted = {f"SGPU_COOKIE={cookie}".encode(): cookie for cookie in cookies}
    found: dict[str, list[int]] = {}
    for name in os.listdir("/proc"):
        if not name.isdigit() or int(name) == os.getpid():
            continue
        for entry in wanted.keys() & set(_environment(int(name))):
            if start_time(int(name)) is not None:
                found.setdefault(wanted[entry], []).append(int(name))
    return found


def variables(pid: int) -> dict[str, str]:
    """Return the environment that a process was started with; empty if this user may not read it,
    or if the process has ended."""
    entries = (os.fsdecode(entry).partition("=") for entry in _environment(pid))
    return {name: value for name, equals, value in entries if equals}


def carries(pid: int, entry: bytes) -> bool:
    """Say whether a process was started with that `NAME=value` in its environment."""
    return entry in _environment(pid)


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


def open_process(pid: int) -> int:
    """Return a descriptor of a process that can be read once it has ended; -1 if this kernel has
    none.

    Raises:
        ProcessLookupError: there is no such process.
        OSError: there is no descriptor left.
    """
    if not available(PIDFD_OPEN):
        return -1
    try:
        return os.pidfd_open(pid)
    except OSError as error:
        if error.errno in _GONE:
            raise ProcessLookupError(errno.ESRCH, os.strerror(errno.ESRCH)) from None
        raise


def tell(pid: int, started: int | None, number: int) -> bool:
    """Send a signal to that very process; False when it is gone.

    The start time is read after the process was opened, so a reused pid is never hit. If the
    kernel cannot open it, the pid must be reused between that look and the signal.
    """
    if started is None:
        return False
    try:
        handle = open_process(pid)
    except OSError:
        return False
    try:
        if start_time(pid) != started:
            return False
        if handle >= 0 and available(PIDFD_SEND_SIGNAL):
            signal.pidfd_send_signal(handle, number)
        else:
            os.kill(pid, number)
    except ProcessLookupError:
        return False
    finally:
        if handle >= 0:
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
        until_one_ends([pid for pid, _ in members], left)


def until_one_ends(pids: Sequence[int], seconds: float) -> bool:
    """Wait until one of the processes has ended, at most so long; return whether one has.

    One that was not collected by its parent has ended too.

    Raises:
        OSError: there is no descriptor to look with.
    """
    poller = select.poll()
    handles = []
    try:
        for pid in pids:
            try:
                handle = open_process(pid)
            except ProcessLookupError:
                return True
            except OSError:
                break  # out of descriptors: those at hand are enough to wait on
            if handle < 0:
                break
            handles.append(handle)
        if not handles:
            return _look_until_one_ends(pids, seconds)
        for handle in handles:
            poller.register(handle, select.POLLIN)
        return bool(poller.poll(math.ceil(min(seconds, _LONGEST_POLL) * 1000)))
    finally:
        for handle in handles:
            os.close(handle)


def _look_until_one_ends(pids: Sequence[int], seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while all(start_time(pid) is not None for pid in pids):
        left = deadline - time.monotonic()
        if left <= 0:
            return False
        time.sleep(min(left, _PAUSE))
    return True
