"""The system calls that kernel and interpreter offer the agent, and what a missing one costs.

A sandbox refuses system calls, mostly with ENOSYS or EPERM. An interpreter that was built for an
old system, as those of conda are, lacks functions that its kernel has. Both count the same. Each
call is tried once per process, and the plan and the agent's log show one line about them.

Without pidfd, SIGCHLD says that a rank has ended. Without a subreaper, `process_tree` finds
processes by their environment and session, and there is no warm start. Without a parent-death
signal, `supervision/orphans` ends the ranks if guardian and supervisor are both killed.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os

from sgpu_decl.agent.system.fast_stdlib import signal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

OK = "ok"

PIDFD_OPEN = "pidfd_open"
PIDFD_SEND_SIGNAL = "pidfd_send_signal"
CHILD_SUBREAPER = "child_subreaper"
PARENT_DEATH_SIGNAL = "parent_death_signal"
MEMFD_CREATE = "memfd_create"
PROC_CHILDREN = "proc_children"

COSTS = {
    PIDFD_OPEN: "ranks that fail in the same instant are told apart by number only",
    PIDFD_SEND_SIGNAL: "a signal goes to a process by its number",
    CHILD_SUBREAPER: (
        "no warm start; a process that leaves the session of its rank and clears its environment"
        " is not found"
    ),
    PARENT_DEATH_SIGNAL: "one more process ends the ranks if their supervisor is killed",
    MEMFD_CREATE: "variables are passed on in a file without a name, in memory where /dev/shm is",
    PROC_CHILDREN: "processes are found by reading all of /proc",
}
"""The features that the agent can do without, and what a run loses without them."""

PR_SET_PDEATHSIG, _PR_GET_PDEATHSIG = 1, 2  # linux/prctl.h
PR_SET_CHILD_SUBREAPER, _PR_GET_CHILD_SUBREAPER = 36, 37
_PUNCH_HOLE = 0x1 | 0x2  # FALLOC_FL_KEEP_SIZE | FALLOC_FL_PUNCH_HOLE
_PROBED = 4096  # bytes of the file that is probed
_NEW = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
_SCARCE = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM})

_libc = ctypes.CDLL(None, use_errno=True)
_refusals: dict[str, int] = {}


def available(name: str) -> bool:
    """Whether the agent may use a feature of `COSTS`. It is tried once in a process."""
    return _refusal(name) == 0


def kernel_features(folder: str | None = None) -> dict[str, str]:
    """Return `ok`, or the name of the errno, for each system call and feature that the agent uses.

    Nothing stays changed. The features of files depend on the file system of `folder`, by default
    the folder of temporary files.
    """
    refusals = {name: _refusal(name) for name in COSTS}
    place = folder or os.environ.get("TMPDIR") or "/tmp"  # noqa: S108
    path = os.path.join(place, f"sgpu-probe-{os.urandom(8).hex()}")
    no_file = _errno_of(lambda: os.close(os.open(path, _NEW, 0o600)))
    if no_file:
        refusals.update(dict.fromkeys(_OF_FILES, no_file))
    else:
        handle = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        try:
            os.pwrite(handle, bytes(_PROBED), 0)
            for name, use in _OF_FILES.items():
                refusals[name] = _errno_of(lambda use=use: use(handle, path))  # type: ignore[misc]
        finally:
            os.close(handle)
            os.unlink(path)
    return {name: _word(code) for name, code in refusals.items()}


def shortcomings() -> list[tuple[str, str, str]]:
    """Return (name, errno, cost) of each feature of `COSTS` that this kernel lacks."""
    return [
        (name, _word(code), cost) for name, cost in COSTS.items() if (code := _refusal(name)) != 0
    ]


def in_words(lacking: Sequence[tuple[str, str, str]]) -> str:
    """Return one line about `shortcomings`."""
    names = ", ".join(f"{name} ({error})" for name, error, _ in lacking)
    return f"this machine lacks {names}: " + "; ".join(cost for _, _, cost in lacking)


def prctl(option: int, value: int) -> None:
    """Set an attribute of this process.

    Raises:
        OSError: it is refused.
    """
    _check(_libc.prctl(option, value, 0, 0, 0))


def punch_hole(descriptor: int, size: int) -> None:
    """Give the first `size` bytes of a file back to its file system; its length stays.

    Raises:
        OSError: the file system has no holes.
    """
    _check(_libc.fallocate(descriptor, _PUNCH_HOLE, ctypes.c_int64(0), ctypes.c_int64(size)))


def _check(status: int) -> None:
    if status != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))


def _word(code: int) -> str:
    return errno.errorcode.get(code, str(code)) if code else OK


def _refusal(name: str) -> int:
    """Return the errno that a feature is refused with; 0 if it is there."""
    code = _refusals.get(name)
    if code is None:
        code = _errno_of(_PROBES[name])
        if code in _SCARCE:
            return 0  # the machine is out of something now: that says nothing about the feature
        _refusals[name] = code
    return code


def _errno_of(use: Callable[[], object]) -> int:
    try:
        use()
    except OSError as error:
        return error.errno or errno.EIO
    except AttributeError:  # the interpreter has no such function
        return errno.ENOSYS
    return 0


def _pidfd_open() -> None:
    os.close(os.pidfd_open(os.getpid()))


def _pidfd_send_signal() -> None:
    """Send to no descriptor: where the call is there, it answers with EBADF."""
    try:
        signal.pidfd_send_signal(-1, 0)
    except OSError as error:
        if error.errno != errno.EBADF:
            raise


def _memfd_create() -> None:
    os.close(os.memfd_create("sgpu"))


def _set_again(setting: int, getting: int) -> None:
    """Set an attribute of this process to the value that it has."""
    value = ctypes.c_int()
    _check(_libc.prctl(getting, ctypes.byref(value), 0, 0, 0))
    prctl(setting, value.value)


def _proc_children() -> None:
    os.stat(f"/proc/self/task/{os.getpid()}/children")


_PROBES: dict[str, Callable[[], None]] = {
    PIDFD_OPEN: _pidfd_open,
    PIDFD_SEND_SIGNAL: _pidfd_send_signal,
    CHILD_SUBREAPER: lambda: _set_again(PR_SET_CHILD_SUBREAPER, _PR_GET_CHILD_SUBREAPER),
    PARENT_DEATH_SIGNAL: lambda: _set_again(PR_SET_PDEATHSIG, _PR_GET_PDEATHSIG),
    MEMFD_CREATE: _memfd_create,
    PROC_CHILDREN: _proc_children,
}


def _notify(_handle: int, path: str) -> None:
    handle = os.open(os.path.dirname(path), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        # 0 asks for no event, so no signal comes.
        fcntl.fcntl(handle, fcntl.F_NOTIFY, 0)
    finally:
        os.close(handle)


def _seek_data(handle: int, _path: str) -> None:
    try:
        os.lseek(handle, 0, os.SEEK_DATA)
    except OSError as error:
        if error.errno != errno.ENXIO:  # the file is one hole
            raise


def _hard_link(_handle: int, path: str) -> None:
    os.link(path, f"{path}.link")
    os.unlink(f"{path}.link")


_OF_FILES: dict[str, Callable[[int, str], None]] = {
    "directory_notify": _notify,
    "flock": lambda handle, _path: fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB),
    "fallocate": lambda handle, _path: os.posix_fallocate(handle, 0, _PROBED),
    "punch_hole": lambda handle, _path: punch_hole(handle, _PROBED),
    "seek_data": _seek_data,
    "hard_link": _hard_link,
}
