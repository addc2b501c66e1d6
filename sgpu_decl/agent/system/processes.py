"""Processes of Linux: identities that survive the reuse of pids, family trees, and their end."""

from __future__ import annotations

import errno
import math
import os
import select
import time

from sgpu_decl.agent.system.fast_stdlib import signal
from sgpu_decl.agent.system.kernel_features import (
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

_LONGEST_POLL = 86_400.0  # seconds: poll takes 24 days at most
_LONGEST_EXECVE = 1.0  # seconds
_LOOKS = 3
_ENV_END = 48  # of the fields of /proc/PID/stat from the third on
_PAUSE = 0.01  # seconds between two looks, if the kernel does not report the end of a process

# Of pidfd_open(2): there is no such process, or the number is that of a thread by now.
_GONE = frozenset({errno.ESRCH, errno.EINVAL, errno.ENOENT})


def become_subreaper() -> None:
    """Make orphaned descendants children of this process instead of init's, if the kernel can."""
    if available(CHILD_SUBREAPER):
        prctl(PR_SET_CHILD_SUBREAPER, 1)


def die_with_parent(parent: int, number: int = signal.SIGKILL) -> None:
    """Ask for a signal when the parent dies, and leave at once if it is dead already.

    If the kernel sends no such signal, only the process above the parent notices its end.
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
    """Raise if descriptors have run out: then nothing can be read, whatever is there."""
    if error.errno in (errno.EMFILE, errno.ENFILE):
        raise error


def boot_id() -> str:
    return _read("/proc/sys/kernel/random/boot_id").decode().strip()


def machine_id() -> str:
    return _read("/etc/machine-id").decode().strip() or os.uname().nodename


def stat_fields(pid: int) -> list[bytes]:
    """Return the fields of /proc/PID/stat from the third on: state, ppid, ..."""
    return _read(f"/proc/{pid}/stat").rpartition(b")")[2].split()


def _lives(fields: list[bytes]) -> bool:
    """Whether it runs. If only its main thread has ended, it looks like a zombie."""
    return len(fields) >= 20 and (fields[0] not in (b"Z", b"X") or int(fields[17]) > 1)


def start_time(pid: int) -> int | None:
    """Return when a process started, in clock ticks since boot; None for the dead and zombies."""
    fields = stat_fields(pid)
    return int(fields[19]) if _lives(fields) else None


def alive(pid: int, started: int) -> bool:
    """Whether this very process still lives: the pid with the same start time."""
    return start_time(pid) == started


def cpu_ticks(pid: int) -> int:
    """Return the CPU time that a process used, with its reaped children, in clock ticks."""
    fields = stat_fields(pid)
    return sum(map(int, fields[11:15])) if len(fields) >= 15 else 0


def wakeups(pid: int) -> int:
    """Return how often the main thread of a process gave up its processor and went on: the
    `voluntary_ctxt_switches` of proc(5)."""
    _, _, rest = _read(f"/proc/{pid}/task/{pid}/status").partition(b"\nvoluntary_ctxt_switches:")
    first = rest.partition(b"\n")[0].strip()
    return int(first) if first.isdigit() else 0


def ancestors(pid: int) -> list[int]:
    """Return a process and those above it, but for the first of the machine or the container."""
    found: list[int] = []
    while pid > 1 and pid not in found:
        found.append(pid)
        fields = stat_fields(pid)
        pid = int(fields[1]) if len(fields) > 1 else 0
    return found


def descendants(root: int) -> list[int]:
    """Return the living descendants of a process, without zombies, parents before children."""
    if not available(PROC_CHILDREN):
        return related(root)
    living: list[int] = []
    pending = [root]
    while pending:
        children = _children(pending.pop())
        pending += children
        living += [child for child in children if _lives(stat_fields(child))]
    return living


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
    listed = ((pid, stat_fields(pid)) for pid in _pids())
    return {pid: (int(fields[1]), int(fields[3])) for pid, fields in listed if _lives(fields)}


def _pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


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
    tree = {root: None}
    while pending:
        pid = pending.pop()
        if pid not in tree:
            tree[pid] = None
            pending += children.get(pid, ())
    del tree[root]
    return list(tree)


def _is_marked(pid: int, marks: Collection[frozenset[bytes]]) -> bool:
    environment = set(_environment(pid))
    return any(mark <= environment for mark in marks)


def _environment(pid: int) -> list[bytes]:
    """Return the `NAME=value` that a process was started with. If its main thread has ended, they
    are read from another one; while it is in execve(2), it shows none, so that is waited for."""
    entries = _read(f"/proc/{pid}/environ", 4 << 20)
    if not entries and stat_fields(pid)[:1] == [b"Z"]:
        try:
            threads = os.listdir(f"/proc/{pid}/task")
        except FileNotFoundError:
            return []
        for thread in threads:
            entries = entries or _read(f"/proc/{pid}/task/{thread}/environ", 4 << 20)
    if not entries and _has_program(pid):
        last = time.monotonic() + _LONGEST_EXECVE
        without = 0  # looks in a row at a program that has started, and may begin another one
        while not entries and without < _LOOKS:
            # In this order: one that has started shows its environment after that.
            started = not _is_in_execve(pid) or time.monotonic() > last
            without = without + 1 if started else 0
            entries = _read(f"/proc/{pid}/environ", 4 << 20)
    return entries.split(b"\0")


def _has_program(pid: int) -> bool:
    """Whether we see which program a process runs: not if it has ended, or is the kernel's or
    another user's."""
    try:
        os.readlink(f"/proc/{pid}/exe")
    except OSError as error:
        _refuse_to_guess(error)
        return False
    return True


def _is_in_execve(pid: int) -> bool:
    """Whether a process has a new program, and not its environment yet: `env_end` is 0. See
    proc_pid_stat(5)."""
    fields = stat_fields(pid)
    return len(fields) > _ENV_END and fields[_ENV_END] == b"0"


def carriers(cookie: str) -> list[tuple[int, int]]:
    """Return (pid, start time) of the living processes that inherited `SGPU_COOKIE=<cookie>`."""
    return carriers_by_cookie(frozenset({cookie})).get(cookie, [])


def carriers_by_cookie(cookies: frozenset[str]) -> dict[str, list[tuple[int, int]]]:
    """Return the `carriers` of each cookie, without this process. It reads all processes once."""
    entries = {f"SGPU_COOKIE={cookie}".encode(): cookie for cookie in cookies}
    members: dict[str, list[tuple[int, int]]] = {}
    for pid in _pids():
        # The start time first: if the pid is used again meanwhile, no signal reaches the new one.
        started = start_time(pid)
        if started is None or pid == os.getpid():
            continue
        for entry in entries.keys() & set(_environment(pid)):
            members.setdefault(entries[entry], []).append((pid, started))
    return members


def variables(pid: int) -> dict[str, str]:
    """Return the environment that a process was started with; empty if it has ended, or if this
    user may not read it."""
    entries = (os.fsdecode(entry).partition("=") for entry in _environment(pid))
    return {name: value for name, equals, value in entries if equals}


def carries(pid: int, entry: bytes) -> bool:
    """Whether a process was started with this `NAME=value` in its environment."""
    return entry in _environment(pid)


def command_line(pid: int) -> bytes:
    """Return the arguments of a process with a NUL after each, or the title that it wrote there;
    empty if it has ended."""
    return _read(f"/proc/{pid}/cmdline", 65_536)


def places_of_processes(pid: int) -> str:
    """Return where a process and those below it are, as the kernel tells: proc(5). It names a
    function of the kernel (`wchan`) and a system call by its number, where we may know them."""
    lines = []
    for each in (pid, *descendants(pid)):
        fields = stat_fields(each)
        state = fields[0].decode() if fields else "?"
        program = command_line(each).partition(b"\0")[0].decode("utf-8", "replace")
        lines.append(f"Process {each} ({program}):")
        waits, call = (
            _read(f"/proc/{each}/{name}").decode().partition(" ")[0]
            for name in ("wchan", "syscall")
        )
        lines.append(f"  state {state}")
        lines += [f"  waits in {waits}"] if waits.strip("0") else []
        lines += [f"  in system call {call}"] if call.isdigit() else []
    return "\n".join(lines) + "\n"


def handles(pid: int, number: int) -> bool:
    """Whether a process has a handler for this signal."""
    for line in _read(f"/proc/{pid}/status").splitlines():
        name, _, value = line.partition(b":")
        if name == b"SigCgt":
            return bool(int(value, 16) >> (number - 1) & 1)
    return False


def may_signal(pid: int) -> bool:
    """Whether we may signal a process: not if a setuid program made it another user's."""
    try:
        os.kill(pid, 0)
    except PermissionError:
        return False
    except ProcessLookupError:
        pass  # it has ended
    return True


def open_process(pid: int) -> int:
    """Return a descriptor that can be read once the process has ended; -1 if the kernel has none.

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


def send_signal(pid: int, started: int | None, number: int) -> bool:
    """Send a signal to this very process; False if it is gone.

    The start time is read after the process was opened, so another process of that pid never gets
    the signal. If the kernel cannot open processes, that holds but for an instant.
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
    """Reap every dead child; return their pids."""
    pids = []
    try:
        while pid := os.waitpid(-1, os.WNOHANG)[0]:
            pids.append(pid)
    except ChildProcessError:
        return pids
    return pids


def has_children() -> bool:
    """Reap every dead child; return whether another one lives."""
    reap()
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


def stop_all(find: Callable[[], Iterable[int]], grace: float, *, ask: bool = True) -> None:
    """Stop all that `find` returns: TERM, up to `grace` seconds, then KILL until it finds none.

    New processes (the next generation of a fork bomb) are found again and get the same. Those that
    we may not signal stay.
    """
    deadline = time.monotonic() + grace
    termed: set[tuple[int, int]] = set()
    while True:
        reap()
        pids = filter(may_signal, find())
        members = [(pid, at) for pid in pids if (at := start_time(pid)) is not None]
        if not members:
            return
        force = not ask or time.monotonic() >= deadline
        for member in members:
            if force or member not in termed:
                send_signal(*member, signal.SIGKILL if force else signal.SIGTERM)
        termed.update(members)
        patience = 0.2 if force else max(0.0, deadline - time.monotonic())
        until_one_ends([pid for pid, _ in members], patience)


def until_one_ends(pids: Sequence[int], seconds: float) -> bool:
    """Wait until one of the processes has ended, at most that long; return whether one has.

    A zombie has ended too.

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
                break  # out of descriptors: the others are enough to wait for
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
        remaining = deadline - time.monotonic()
        if remaining <= 0:
            return False
        time.sleep(min(remaining, _PAUSE))
    return True
