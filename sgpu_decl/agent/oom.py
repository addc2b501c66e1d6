"""Telling a rank that the kernel killed for memory from one that somebody killed."""

from __future__ import annotations

import os

__all__ = ["killed_for_memory", "oom_kills"]

_FIRST_PID_NAMESPACE = 4_026_531_836  # PROC_PID_INIT_INO: pids here are those of the kernel's log


def killed_for_memory(pid: int, kills_before: int) -> bool:
    """Say whether the kernel's SIGKILL ended a child that died by one.

    The kernel counts its kills; `kills_before` is the count from before the child started. Where
    its log can be read, the log also says whom it killed, and another's death proves nothing.
    """
    if oom_kills() <= kills_before:
        return False
    named = _named_by_the_kernel(b"Killed process %d " % pid)
    return True if named is None else named


def oom_kills() -> int:
    """Return how many processes the kernel has killed for memory: of our cgroup, and of all."""
    own = 0
    try:
        with open("/proc/self/cgroup") as file:
            for line in file:
                number, controllers, path = line.rstrip("\n").split(":", 2)
                if number == "0":
                    own += _counter(f"/sys/fs/cgroup{path}/memory.events", "oom_kill")
                elif controllers == "memory":
                    own += _counter(f"/sys/fs/cgroup/memory{path}/memory.oom_control", "oom_kill")
    except OSError:
        own = 0
    return own + _counter("/proc/vmstat", "oom_kill")


def _counter(path: str, name: str) -> int:
    try:
        with open(path) as file:
            for line in file:
                key, _, value = line.partition(" ")
                if key == name:
                    return int(value)
    except (OSError, ValueError):
        return 0
    return 0


def _named_by_the_kernel(words: bytes) -> bool | None:
    """Say whether the kernel's log has these words; None where it cannot be read or compared."""
    try:
        if os.stat("/proc/self/ns/pid").st_ino != _FIRST_PID_NAMESPACE:
            return None
        log = os.open("/dev/kmsg", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        while True:
            try:
                if words in os.read(log, 8192):
                    return True
            except BrokenPipeError:
                continue  # the record was overwritten meanwhile; the next one is there
    except BlockingIOError:
        return False  # the end of the log
    except OSError:
        return None
    finally:
        os.close(log)
