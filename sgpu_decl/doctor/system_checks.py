"""The operating system: its kernel, limits, memory and clock, and programs that sgpu calls."""

import ctypes
import errno
import os
import platform
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import sgpu_decl
from sgpu_decl.agent.system.kernel_features import COSTS, OK, kernel_features
from sgpu_decl.config.loaded import LoadedRun
from sgpu_decl.control_groups import (
    control_groups,
    memory_limit,
    number_in,
    processor_quota,
    read_file,
)
from sgpu_decl.diagnostics.amounts import duration, size
from sgpu_decl.doctor.network import has_infiniband
from sgpu_decl.environments.declared.uv import find_uv
from sgpu_decl.errors import SgpuError
from sgpu_decl.model.doctor_finding import Finding, fail, ok, warn
from sgpu_decl.model.state import State
from sgpu_decl.regular_files import trusted_path
from sgpu_decl.system_errors import error_text

_FEW_FILES, _USUAL_FILES = 256, 1024
_FEW_PROCESSES = 1024
_SMALL_FILE = 10 << 20
_LITTLE, _SCARCE = 200 << 20, 2 << 30
_OLDEST = (5, 4)
# A full or read-only disk says nothing about the kernel; `disk` and `limits` say it.
_OF_THE_DISK = frozenset({"EACCES", "EDQUOT", "EFBIG", "ENOSPC", "EROFS"})
_FILE_FEATURES_COST = {
    "flock": "two commands at once do not exclude each other",
    "hard_link": "runs cannot be asked to stop",
    "punch_hole": "logs of ranks cannot be bounded",
    "seek_data": "bounded logs are read with their holes",
    "fallocate": "room for the outcome is written instead of set aside",
    "directory_notify": "a deleted attempt folder stops its ranks up to 2 seconds later",
}
_TOLERATED = 60.0  # seconds
_UNSYNCHRONISED = 0x40  # STA_UNSYNC of <sys/timex.h>
_STATUS = slice(40, 44)  # of `struct timex`, where `long` has 8 bytes
_TIMEX = 512  # bytes, more than the structure has
_PATIENCE = 5.0  # seconds for `git --version`


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


def check_kernel(attempts: Path) -> Iterator[Finding]:
    """Try out each call that the agent makes; those about files where attempts are written."""
    system = f"{platform.system()} {platform.release()}"
    if platform.system() != "Linux":
        hint = "use a target with another backend for runs"
        yield warn("kernel", f"{system}: runs on this machine need Linux", hint)
        return
    version = tuple(int(item) for item in platform.release().split(".")[:2] if item.isdigit())
    if len(version) == 2 and version < _OLDEST:
        yield warn("kernel", f"{system} is older than 5.4, which sgpu is tested with", None)
    usable = os.path.isdir(attempts) and os.access(attempts, os.W_OK)
    try:
        features = kernel_features(os.fspath(attempts) if usable else None)
    except OSError as error:
        if errno.errorcode.get(error.errno or 0) not in _OF_THE_DISK:
            raise
        text = f"the system calls for files could not be tried: {error_text(error)}"
        yield warn("kernel", text, "see `disk` and `limits`")
        return
    refused = {name: word for name, word in features.items() if word not in {OK, *_OF_THE_DISK}}
    for name, word in refused.items():
        cost = COSTS.get(name) or _FILE_FEATURES_COST.get(name, "")
        yield warn("kernel", f"`{name}` is refused ({word}): {cost}", _way_out(name))
    if not refused:
        yield ok("kernel", f"{system} has all system calls that supervisors use")


def _way_out(name: str) -> str:
    if name in COSTS:
        return "a sandbox refuses it: allow it in the seccomp profile of the container"
    return "the file system of the project lacks it: keep the project on a local disk"


def check_clock(states: tuple[State, ...]) -> Iterator[Finding]:
    """Recorded times lie in the past. If the clock is behind them, it is slow."""
    now = time.time()
    newest, source = max(_known_past(states))
    if newest > now + _TOLERATED:
        yield warn(
            "clock",
            f"the clock is at least {duration(newest - now)} slow: {source} is of "
            f"{datetime.fromtimestamp(newest).astimezone():%Y-%m-%d %H:%M}",
            "set it, for instance with `sudo timedatectl set-ntp true`: certificates, tokens and "
            "the order of attempts depend on it",
        )
        return
    yield ok("clock", f"the clock is later than all recorded times; {_synchronisation()}")


def _known_past(states: tuple[State, ...]) -> Iterator[tuple[float, str]]:
    yield Path(sgpu_decl.__file__).stat().st_mtime, "the installation of sgpu"
    for state in states:
        for recorded in state.resources.values():
            last = recorded.last
            if last is not None:
                moment = last.ended_at or last.started_at or last.created_at
                yield moment.timestamp(), f"`{last.ref}`"


def _synchronisation() -> str:
    """What the kernel says about NTP, by adjtimex(2), which changes nothing with `modes` 0."""
    adjtimex = getattr(ctypes.CDLL(None), "adjtimex", None)
    answer = ctypes.create_string_buffer(_TIMEX)
    if sys.platform != "linux" or adjtimex is None or adjtimex(answer) < 0:
        return "whether NTP keeps it is not known"
    status = int.from_bytes(answer.raw[_STATUS], sys.byteorder)
    return "NTP does not keep it" if status & _UNSYNCHRONISED else "NTP keeps it"


def check_programs(runs: tuple[LoadedRun, ...], project: Path) -> Iterator[Finding]:
    """`project` is the folder whose programs are not run."""
    yield _uv(any(set(run.config.env.origins) - {"snapshot"} for run in runs), project)
    yield _git(project)


def _uv(needed: bool, project: Path) -> Finding:  # noqa: FBT001  named by its caller
    try:
        return ok("uv", f"`{find_uv(os.environ, project)}`")
    except SgpuError as error:
        if needed:
            return fail("uv", error.message, error.hint)
        return warn("uv", f"{error.message}; no run here needs it", error.hint)


def _git(project: Path) -> Finding:
    path = shutil.which("git", path=trusted_path(os.environ, project))
    missing = "install git: `${git.…}` and the commit of a run come from it"
    if path is None:
        return warn("git", "there is no git on the PATH", missing)
    try:
        answer = subprocess.run(
            [path, "--version"], capture_output=True, text=True, timeout=_PATIENCE, check=True
        )
    except (OSError, subprocess.SubprocessError) as error:
        return warn("git", f"`{path}` does not run: {error}", missing)
    return ok("git", f"{answer.stdout.strip().removeprefix('git ')}, `{path}`")
