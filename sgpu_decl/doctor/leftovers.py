"""Leftovers of attempts: processes, records, and attempts without a supervisor."""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from sgpu_decl.agent.attempt import attempt_files
from sgpu_decl.agent.attempt.host_record import abandoned_records, read_record
from sgpu_decl.agent.system import processes
from sgpu_decl.agent.system.locks import held
from sgpu_decl.model.attempt import AttemptState
from sgpu_decl.model.backend_kinds import DEFAULT
from sgpu_decl.model.doctor_finding import Finding, ok, warn
from sgpu_decl.model.state import State
from sgpu_decl.planning.project import Project

_PROCESSES, _ATTEMPTS = "processes", "attempts"


def check_processes() -> Iterator[Finding]:
    """Find processes of ranks without a supervisor, of all projects of this user."""
    orphans: dict[tuple[str, str], list[int]] = {}
    has_supervisor: dict[str, bool] = {}
    for pid, variables in _ranks():
        run_dir = variables.get("SGPU_RUN_DIR", "")
        if run_dir not in has_supervisor:
            has_supervisor[run_dir] = _is_supervised(run_dir)
        if not has_supervisor[run_dir]:
            name = f"{variables.get('SGPU_ADDRESS')}#{variables.get('SGPU_ATTEMPT')}"
            orphans.setdefault((name, run_dir), []).append(pid)
    for (name, run_dir), pids in orphans.items():
        numbers = " ".join(map(str, sorted(pids)))
        yield warn(
            _PROCESSES,
            f"{name} (`{run_dir}`) has no supervisor any more, and left processes: {numbers}",
            f"`sgpu cancel '{name}'` in its project stops them, or `kill {numbers}`: they may hold "
            "GPUs, ports and memory",
        )
    if not orphans:
        running = sum(has_supervisor.values())
        yield ok(_PROCESSES, f"no process is left of an ended attempt; running attempts: {running}")
    abandoned = abandoned_records()
    if abandoned:
        yield ok(
            "locks",
            f"attempts killed together with their supervisor: {len(abandoned)}; their records in "
            f"`{Path(abandoned[0]).parent.parent}` lock nothing; `sgpu gc` deletes those of "
            "deleted attempts",
        )


def check_attempts(project: Project, state: State) -> Iterator[Finding]:
    """Compare the attempts that are recorded as active on this machine with their folders."""
    mine = [item for item in state.active if item.backend == DEFAULT]
    views = project.backend(DEFAULT).attempts.look([state.launch_of(item) for item in mine])
    lost_refs = [ref for ref, view in views.items() if view.state is AttemptState.LOST]
    for attempt in mine:
        view = views.get(attempt.ref)
        if view is None:
            yield warn(
                _ATTEMPTS,
                f"{attempt.ref} is recorded as active, and its folder is gone",
                "the next `sgpu apply` launches it again",
            )
        elif (silent := view.not_responding_since) is not None:
            since = f"{silent:%Y-%m-%d %H:%M:%S} UTC"
            yield warn(
                _ATTEMPTS,
                f"the supervisor of {attempt.ref} has been silent since {since}",
                f"`sgpu cancel '{attempt.ref}'` ends the attempt, by force if necessary",
            )
    for ref in lost_refs:
        yield warn(
            _ATTEMPTS,
            f"{ref} is recorded as active, and its supervisor is gone",
            "the next `sgpu apply` launches it again",
        )
    if mine and not lost_refs:
        yield ok(_ATTEMPTS, f"{len(mine)} recorded as active on this machine")


def _is_supervised(run_dir: str) -> bool:
    """Whether supervisor or guardian live; a folder that was deleted has a record on its host."""
    locks = (attempt_files.SUPERVISOR_LOCK, attempt_files.GUARDIAN_LOCK)
    try:
        alive = any(held(os.path.join(run_dir, name)) for name in locks)
    except OSError:
        return True  # it cannot be told, so nothing is said against it
    return alive or read_record(run_dir) is not None


def _ranks() -> Iterator[tuple[int, Mapping[str, str]]]:
    """The processes with a cookie of sgpu, and their variables."""
    own_pids = {os.getpid(), os.getppid()}  # a rank may have started them
    try:
        names = os.listdir("/proc")
    except OSError:
        return
    for name in filter(str.isdigit, names):
        variables = processes.variables(int(name))
        if "SGPU_COOKIE" in variables and int(name) not in own_pids:
            yield int(name), variables
