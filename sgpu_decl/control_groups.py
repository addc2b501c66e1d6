"""What the kernel lets this process use: memory and processors, with the limits of its control
groups, v2 and v1. All of it is Linux's."""

import os
from collections.abc import Iterator
from pathlib import Path

_UNLIMITED_V1 = 1 << 62  # v1 writes the largest multiple of a page for no limit


def usable_processors() -> int:
    """How many processors this process may use, by its affinity and its quota; at least 1."""
    quotas = [quota for group in control_groups() if (quota := processor_quota(group))]
    return max(1, int(min([len(os.sched_getaffinity(0)), *quotas])))


def control_groups() -> Iterator[Path]:
    """The folders of this process's control groups and of those above them."""
    for line in read_file(Path("/proc/self/cgroup")).splitlines():
        number, controllers, place = line.split(":", 2)
        for name in ("",) if number == "0" else controllers.split(","):
            root = Path("/sys/fs/cgroup", name)
            folder = root / place.lstrip("/")
            for group in (folder, *folder.parents):
                if group.is_relative_to(root) and group.is_dir():
                    yield group


def processor_quota(group: Path) -> float | None:
    quota, _, period = read_file(group / "cpu.max").partition(" ")
    if not quota:
        quota = read_file(group / "cpu.cfs_quota_us")
        period = read_file(group / "cpu.cfs_period_us")
    return int(quota) / int(period) if quota.isdigit() and period.isdigit() else None


def memory_limit(group: Path) -> int | None:
    text = read_file(group / "memory.max") or read_file(group / "memory.limit_in_bytes")
    return int(text) if text.isdigit() and int(text) < _UNLIMITED_V1 else None


def number_in(path: Path, name: str) -> int:
    """The number beside a name in a file of the kernel; 0 if it is not there."""
    for line in read_file(path).splitlines():
        key, *values = line.split()
        if key == name:
            return int(values[0])
    return 0


def read_file(path: Path) -> str:
    """The text of a file of the kernel; empty if it is not there."""
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""
