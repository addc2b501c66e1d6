"""The limits of this user's processes, the memory and the processors of this machine."""

import os
import resource
import sys
from collections.abc import Iterator
from pathlib import Path

from sgpu_decl.control_groups import (
    control_groups,
    memory_limit,
    number_in,
    processor_quota,
    read_file,
)
from sgpu_decl.diagnostics.amounts import size
from sgpu_decl.doctor.network import has_infiniband
from sgpu_decl.model.doctor_finding import Finding, fail, ok, warn

_FEW_FILES, _USUAL_FILES = 256, 1024
_FEW_PROCESSES = 1024
_SMALL_FILE = 10 << 20
_LITTLE, _SCARCE = 200 << 20, 2 << 30


def check_limits() -> Iterator[Finding]:
    """Look at the limits that ranks inherit from this shell."""
    problems = list(_limits())
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if not problems:
        yield ok("limits", f"{files:,} open files; no other limit affects runs")
    yield from problems


def _limits() -> Iterator[Finding]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < _USUAL_FILES:
        higher = min(hard, 65_536)
        way = f"`ulimit -n {higher}`" if higher >= _USUAL_FILES else "have the hard limit raised"
        text = f"a process may open {soft:,} files only: supervisors, NCCL and data loaders need "
        grade = fail if soft < _FEW_FILES else warn
        yield grade("limits", f"{text}more", f"{way} before `sgpu apply`")
    processes, _ = resource.getrlimit(resource.RLIMIT_NPROC)
    if _bounded(processes) and processes < _FEW_PROCESSES and os.geteuid() != 0:
        yield warn(
            "limits",
            f"this user may have {processes:,} processes and threads only",
            "`ulimit -u` raises it up to the hard limit",
        )
    largest, _ = resource.getrlimit(resource.RLIMIT_FSIZE)
    if _bounded(largest):
        grade = fail if largest < _SMALL_FILE else warn
        text = f"no file may become larger than {size(largest)}: checkpoints and logs are cut off"
        yield grade("limits", text, "`ulimit -f unlimited`")
    mapped, _ = resource.getrlimit(resource.RLIMIT_AS)
    if _bounded(mapped):
        text = f"a process may map {size(mapped)} only: CUDA maps more than it uses"
        yield warn("limits", text, "`ulimit -v unlimited`")
    seconds, _ = resource.getrlimit(resource.RLIMIT_CPU)
    if _bounded(seconds):
        text = f"a process is killed after {seconds:,} s of processor time"
        yield warn("limits", text, "`ulimit -t unlimited`")
    locked, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    if _bounded(locked) and has_infiniband():
        yield warn(
            "limits",
            f"a process may lock {size(locked)} of memory only, and InfiniBand needs locked memory",
            "`ulimit -l unlimited`; in a container `--ulimit memlock=-1`",
        )


def _bounded(limit: int) -> bool:
    return limit != resource.RLIM_INFINITY


def check_memory() -> Iterator[Finding]:
    """Look at memory, processors and the number of processes, with the limits of control groups;
    all of it is Linux's."""
    if sys.platform != "linux":
        return
    groups = list(control_groups())
    yield _memory(groups)
    yield _processors(groups)
    tasks = [
        (int(limit), int(read_file(group / "pids.current") or 0))
        for group in groups
        if (limit := read_file(group / "pids.max")).isdigit()
    ]
    scarce = [(limit, use) for limit, use in tasks if limit - use < _FEW_PROCESSES]
    for most, use in scarce[:1]:
        yield warn(
            "processes",
            f"the control group has {use:,} processes and threads of at most {most:,}",
            "raise its limit: in a container `--pids-limit`",
        )


def _memory(groups: list[Path]) -> Finding:
    free = number_in(Path("/proc/meminfo"), "MemAvailable:") * 1024
    total = number_in(Path("/proc/meminfo"), "MemTotal:") * 1024
    where = "of this machine"
    for group in groups:
        limit = memory_limit(group)
        if limit is None or limit >= total:
            continue
        available = limit - _memory_use(group)
        if available < free:
            free, total, where = available, limit, f"of the control group `{group}`"
    text = f"{size(max(0, free))} of {size(total)} {where} free"
    larger = "end other programs" if "machine" in where else "raise the limit of the container"
    if free < _LITTLE:
        return fail("memory", f"only {text}: ranks will be killed", larger)
    if free < _SCARCE:
        return warn("memory", f"only {text}: a rank with torch takes about 0.5 GB", larger)
    return ok("memory", text)


def _memory_use(group: Path) -> int:
    """Without the file cache, which the kernel gives up when it needs to."""
    text = read_file(group / "memory.current") or read_file(group / "memory.usage_in_bytes")
    statistics = group / "memory.stat"
    cache = number_in(statistics, "inactive_file") or number_in(statistics, "total_inactive_file")
    return int(text or 0) - cache


def _processors(groups: list[Path]) -> Finding:
    usable, there = len(os.sched_getaffinity(0)), os.cpu_count() or 1
    quota = min(filter(None, map(processor_quota, groups)), default=None)
    text = f"{usable} of {there} processors" if usable < there else f"{there} processors"
    if quota is None:
        return ok("processors", text)
    text = f"{text}, of which the control group gives {quota:g}"
    if quota >= 1:
        return ok("processors", text)
    return warn("processors", text, "raise the quota of the container: ranks start very slowly")
