"""Whether the kernel killed a rank for lack of memory, or somebody else killed it; and how much
memory there is."""

from __future__ import annotations

from sgpu_decl.agent.system.kernel_log import kernel_records

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_V2, _V1 = "/sys/fs/cgroup", "/sys/fs/cgroup/memory"
_UNLIMITED = 1 << 62  # v1 writes the largest multiple of a page for no limit


class OomKills:
    """How many processes the kernel has killed for memory: in our cgroup, and in all."""

    __slots__ = ("all", "own")

    def __init__(self) -> None:
        files = {_V2: "memory.events", _V1: "memory.oom_control"}
        self.own = sum(
            _counter(f"{root}{path}/{files[root]}", "oom_kill") for root, path in _groups()
        )
        self.all = _counter("/proc/vmstat", "oom_kill")


class Shortage:
    """Why a process was killed for memory. `group` is the cgroup that was at its limit: empty for
    the whole machine, None if unknown. `limit` is in bytes, None if unknown."""

    __slots__ = ("group", "limit")

    def __init__(self, group: str | None, limit: int | None) -> None:
        self.group = group
        self.limit = limit

    def message(self, peak: int) -> dict[str, Any]:
        """Return it as JSON; `peak` is the most memory that the process had, in bytes."""
        return {"group": self.group, "limit_bytes": self.limit, "peak_bytes": peak}


def shortage(pid: int, before: OomKills) -> Shortage | None:
    """Return why the kernel killed a child that died by SIGKILL; None if not for memory.

    The kernel counts its kills; `before` are the counts from before the child started. If its log
    is readable, that also says which process it killed and why.
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


def usable_memory() -> tuple[int, int]:
    """Return the bytes that this process and its children may use, and how many of them are
    available now on this machine."""
    memory = _counter("/proc/meminfo", "MemTotal:") * 1024
    limit = _of_own_group().limit
    if limit is not None:
        memory = min(memory, limit)
    return memory, min(memory, _counter("/proc/meminfo", "MemAvailable:") * 1024)


def _of_own_group() -> Shortage:
    """The lowest limit of a group above this process, which is above its ranks too."""
    lowest = Shortage(None, None)
    for root, path in _groups():
        while True:
            limit = _limit(root, path)
            if limit is not None and (lowest.limit is None or limit < lowest.limit):
                lowest = Shortage(path or "/", limit)
            if not path.strip("/"):
                break
            path = path.rpartition("/")[0]
    return lowest


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
    """Return the roots of the hierarchies that can limit memory, and our place in each."""
    groups = []
    try:
        with open("/proc/self/cgroup") as file:
            for line in file:
                number, controllers, path = line.rstrip("\n").split(":", 2)
                if number == "0":
                    groups.append((_V2, path.rstrip("/")))
                elif controllers == "memory":
                    groups.append((_V1, path.rstrip("/")))
    except OSError:
        return []
    return groups


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
    """Return the kernel's log line about its kill of a process, or an empty one; None if the log
    cannot be read, or has other pids."""
    records = kernel_records()
    if records is None:
        return None
    line = ""
    reason, victim = b"oom-kill:", b"Killed process %d " % pid
    for record in records:
        if reason in record and b",pid=%d," % pid in record:
            line = reason.decode() + record.partition(reason)[2].split(b"\n")[0].decode()
        elif victim in record and not line:
            line = victim.decode()  # one of a group that is killed as a whole
    return line
