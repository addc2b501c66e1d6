"""Telling a rank that the kernel killed for memory from one that somebody killed."""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

__all__ = ["OomKills", "Shortage", "shortage"]

_FIRST_PID_NAMESPACE = 4_026_531_836  # PROC_PID_INIT_INO: pids here are those of the kernel's log
_V2, _V1 = "/sys/fs/cgroup", "/sys/fs/cgroup/memory"
_UNLIMITED = 1 << 62  # v1 writes the largest multiple of a page for no limit


class OomKills:
    """How many processes the kernel has killed for memory so far: in our cgroup, and in all."""

    __slots__ = ("all", "own")

    def __init__(self) -> None:
        files = {_V2: "memory.events", _V1: "memory.oom_control"}
        self.own = sum(
            _counter(f"{root}{path}/{files[root]}", "oom_kill") for root, path in _groups()
        )
        self.all = _counter("/proc/vmstat", "oom_kill")


class Shortage:
    """The lack of memory that a process was killed for. `group` is the cgroup that was at its
    limit, empty if the machine was, None if unknown; `limit` is in bytes, None if unknown."""

    __slots__ = ("group", "limit")

    def __init__(self, group: str | None, limit: int | None) -> None:
        self.group = group
        self.limit = limit

    def tell(self, peak: int) -> dict[str, Any]:
        """Return the JSON for a report; `peak` is the most memory that the process had, in
        bytes."""
        return {"group": self.group, "limit_bytes": self.limit, "peak_bytes": peak}


def shortage(pid: int, before: OomKills) -> Shortage | None:
    """Return the lack of memory for which the kernel killed a child that died by SIGKILL; None if
    the kernel did not kill it for memory.

    The kernel counts its kills; `before` are the counts from before the child started. Where its
    log can be read, the log also says whom it killed and why, and another's death proves nothing.
    """
    now = OomKills()
    if now.own + now.all <= before.own + before.all:
        return None
    line = _kernel_log(pid)
    if line is None:
        return _of_own_group() if now.own > before.own else Shortage(None, None)
    if not line:
        return None
    return _logged(line)


def _of_own_group() -> Shortage:
    """The lowest limit of a group above this process, which is above its ranks too."""
    found = Shortage(None, None)
    for root, path in _groups():
        while True:
            limit = _limit(root, path)
            if limit is not None and (found.limit is None or limit < found.limit):
                found = Shortage(path or "/", limit)
            if not path.strip("/"):
                break
            path = path.rpartition("/")[0]
    return found


def _logged(line: str) -> Shortage:
    """Read `oom-kill:constraint=CONSTRAINT_MEMCG,...,oom_memcg=/a/b,task_memcg=...,pid=1,...`."""
    if not line.startswith("oom-kill:"):
        return Shortage(None, None)
    fields = dict(part.partition("=")[::2] for part in line.partition(":")[2].split(","))
    group = fields.get("oom_memcg")
    if group is None:
        return Shortage("", _counter("/proc/meminfo", "MemTotal:") * 1024 or None)
    limits = [limit for root in (_V2, _V1) if (limit := _limit(root, group)) is not None]
    return Shortage(group, min(limits, default=None))


def _groups() -> list[tuple[str, str]]:
    """Return the roots of the hierarchies that can bound memory, and where we are in each."""
    found = []
    try:
        with open("/proc/self/cgroup") as file:
            for line in file:
                number, controllers, path = line.rstrip("\n").split(":", 2)
                if number == "0":
                    found.append((_V2, path.rstrip("/")))
                elif controllers == "memory":
                    found.append((_V1, path.rstrip("/")))
    except OSError:
        return []
    return found


def _limit(root: str, path: str) -> int | None:
    name = "memory.max" if root == _V2 else "memory.limit_in_bytes"
    try:
        with open(f"{root}{path}/{name}") as file:
            limit = int(file.read())
    except (OSError, ValueError):  # no such group, or `max`
        return None
    return limit if limit < _UNLIMITED else None


def _counter(path: str, name: str) -> int:
    try:
        with open(path) as file:
            for line in file:
                key, *values = line.split()
                if key == name:
                    return int(values[0])
    except (OSError, ValueError):
        return 0
    return 0


def _kernel_log(pid: int) -> str | None:
    """Return the line of the kernel's log about its kill of a process, empty where there is none;
    None where the log cannot be read or compared."""
    try:
        if os.stat("/proc/self/ns/pid").st_ino != _FIRST_PID_NAMESPACE:
            return None
        log = os.open("/dev/kmsg", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    found = ""
    why, whom = b"oom-kill:", b"Killed process %d " % pid
    try:
        while True:
            try:
                record = os.read(log, 8192)
            except BrokenPipeError:
                continue  # the record was overwritten meanwhile; the next one is there
            if why in record and b",pid=%d," % pid in record:
                found = why.decode() + record.partition(why)[2].split(b"\n")[0].decode()
            elif whom in record and not found:
                found = (
                    whom.decode()
                )  # one of a group that is killed as a whole: the log says no more about it
    except BlockingIOError:
        return found  # the end of the log
    except OSError:
        return None
    finally:
        os.close(log)
