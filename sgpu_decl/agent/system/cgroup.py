"""A control group for the ranks of an attempt, which the kernel kills as a whole.

It ends what signals to known pids may miss: a fork bomb, and processes that left their session and
cleared their environment after supervisor and guardian were both killed. It needs a cgroup v2 tree
that this user may write to (root, or a systemd scope with `Delegate=yes`); without one, there is no
group. No controller is used, so the group limits nothing.
"""

from __future__ import annotations

import errno
import os
import select

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


def rank_cgroup() -> str:
    """Return the path of a new group, empty if none can be made.

    Its name is random, since every user of the machine can read it.
    """
    home = _own_cgroup()
    usable = home and os.access(home, os.W_OK)
    usable = usable and os.access(os.path.join(home, "cgroup.procs"), os.W_OK)
    return os.path.join(home, f"sgpu-{os.urandom(16).hex()}") if usable else ""


def fill_cgroup(path: str, find: Callable[[], Iterable[int]]) -> None:
    """Move all that `find` returns into a group, until it finds no others.

    Called once ranks run: the first move waits for a grace period of the kernel, 10 ms or more,
    which would delay their start.
    """
    moved: set[int] = set()
    try:
        os.makedirs(path, exist_ok=True)
        while pids := set(find()) - moved:
            for pid in pids:
                try:
                    _write(os.path.join(path, "cgroup.procs"), b"%d" % pid)
                except ProcessLookupError:
                    continue
            moved |= pids
    except OSError:
        return  # processes outside are still known by their parents and environment


def kill_cgroup(path: str) -> None:
    """Kill all processes of a group at once; does nothing if there is none."""
    if not path:
        return
    try:
        _write(os.path.join(path, "cgroup.kill"), b"1")  # since Linux 5.14
    except OSError:
        return


def remove_cgroup(path: str) -> None:
    """Kill what is left in a group and remove it; does nothing if there is none.

    Killed processes leave it a moment later: this waits for that, at most a second.
    """
    if not path:
        return
    kill_cgroup(path)
    try:
        events = os.open(os.path.join(path, "cgroup.events"), os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return
    poller = select.poll()
    poller.register(events, select.POLLPRI)
    try:
        while True:
            os.pread(events, 100, 0)  # else poll reports the last change again
            try:
                os.rmdir(path)
                return
            except OSError as error:
                if error.errno != errno.EBUSY or not poller.poll(1000):
                    return
    finally:
        os.close(events)


def processor_quota() -> float | None:
    """Return how many processors the groups of this process (v2) let it use; None if no group has
    a limit."""
    quotas = []
    group = _own_cgroup()
    while group.startswith("/"):
        try:
            with open(os.path.join(group, "cpu.max")) as file:
                quota, period = file.read().split()
            if quota != "max":
                quotas.append(int(quota) / int(period))
        except OSError:
            pass  # the root of the tree has no limit
        group = group.rpartition("/")[0]
    return min(quotas, default=None)


def usable_processors() -> int:
    """Return the processors that this process may use: by its affinity, and by the quota of its
    control groups."""
    quota = processor_quota()
    usable = len(os.sched_getaffinity(0))
    return usable if quota is None else max(1, min(usable, int(quota)))


def _own_cgroup() -> str:
    """Return the folder of this process's group in the v2 tree, or an empty text."""
    mount = place = ""
    try:
        with open("/proc/self/mountinfo") as file:
            for line in file:
                fields, _, source = line.partition(" - ")
                if source.startswith("cgroup2 "):
                    root, mount = fields.split()[3:5]
        with open("/proc/self/cgroup") as file:
            for line in file:
                if line.startswith("0::"):
                    place = line[3:].rstrip("\n")
    except OSError:
        return ""
    if not mount or not (place + "/").startswith(root.rstrip("/") + "/"):
        return ""
    return (mount + place.removeprefix(root.rstrip("/"))).rstrip("/")


def _write(path: str, data: bytes) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(descriptor, data)
    finally:
        os.close(descriptor)
