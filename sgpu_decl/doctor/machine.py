"""All checks that `sgpu doctor` makes on this machine, in the order in which they are shown."""

import os
from collections.abc import Generator, Iterator

from sgpu_decl.config.loaded import LoadedRun
from sgpu_decl.content.store.content_store import default_root
from sgpu_decl.diagnostics.diagnostic import Diagnostic, Severity
from sgpu_decl.doctor.collectives import check_collectives
from sgpu_decl.doctor.disk_checks import check_content_stores, check_disk_space
from sgpu_decl.doctor.gpus import check_gpus
from sgpu_decl.doctor.interpreter_checks import check_interpreters, yaml_folder
from sgpu_decl.doctor.leftovers import check_attempts, check_processes
from sgpu_decl.doctor.network import check_network
from sgpu_decl.doctor.states import check_state, readable_state
from sgpu_decl.doctor.system_checks import (
    check_clock,
    check_kernel,
    check_limits,
    check_memory,
    check_programs,
)
from sgpu_decl.doctor.torch_build import check_torch
from sgpu_decl.doctor.tracking_stores import check_tracking_stores
from sgpu_decl.errors import InvalidInput, SgpuError
from sgpu_decl.gpus.devices import read_devices
from sgpu_decl.gpus.health import nvml_loaded, read_gpu_health
from sgpu_decl.model.backend_kinds import is_remote
from sgpu_decl.model.doctor_finding import Finding, fail, few, ok, warn
from sgpu_decl.model.target import BASE
from sgpu_decl.planning.project import Project
from sgpu_decl.planning.project_file import read_file
from sgpu_decl.system_errors import advice, error_text

# Other checks report these, also without a run.
_OF_OTHER_CHECKS = frozenset({
    "interpreter_untrusted", "locks_elsewhere", "mlflow_missing", "no_lock_folder",
    "python_missing",
})  # fmt: skip


def check_machine(project: Project) -> Generator[Finding, None, None]:
    """Check what runs on this machine need. In a project, check also its file, its state and the
    needs of its runs. Nothing is changed and nothing is stopped."""
    runs: tuple[LoadedRun, ...] = ()
    if project.file is not None:
        finding, runs = _file(project)
        yield finding
    elif project.in_project:
        where = f"`{project.root}` has no `sgpu.yml` and no `run.yaml`"
        yield ok("file", f"{where}: the needs of its runs are not checked")
    for check, findings in _checks(project, runs):
        yield from _findings_of(check, findings)


def _checks(
    project: Project, runs: tuple[LoadedRun, ...]
) -> Iterator[tuple[str, Iterator[Finding]]]:
    """The checks with their names. Each starts when its findings are read."""
    with nvml_loaded():
        gpus, devices = read_gpu_health(), read_devices(os.environ)
    yield "interpreter", check_interpreters(runs, project)
    yield "torch", check_torch(runs, project, gpus)
    yield "gpus", check_gpus(devices, gpus)
    yield "runs", _check_runs(runs, project)
    yield "nccl", check_collectives(runs, os.environ, gpus=bool(gpus.gpus))
    yield "kernel", check_kernel(project.state_dir)
    yield "memory", check_memory()
    yield "limits", check_limits()
    yield "disk", check_disk_space(project.state_dir, default_root())
    yield "ports", check_network()
    yield "uv", check_programs(runs, project.root)
    state = None
    if project.in_project:
        home, base = project.state_dir.parent, yaml_folder(project)
        yield "mlflow", check_tracking_stores(runs, home=home, base=base, environ=os.environ)
        yield "state", check_state(project.states)
        if project.target is None:
            for name in project.states.targets():
                if name != BASE:
                    yield "state", check_state(project.states.of_target(name), f" -t {name}")
        state = readable_state(project.states)
    states = () if state is None else (state,)
    yield "clock", check_clock(states)
    yield "store", check_content_stores(project, states)
    if state is not None:
        yield "attempts", check_attempts(project, state)
    yield "processes", check_processes()


def _findings_of(check: str, findings: Iterator[Finding]) -> Iterator[Finding]:
    """The findings of a check. If it raises an error, that is its finding, and others go on."""
    try:
        yield from findings
    except SgpuError as error:
        yield fail(check, error.message, error.hint)
    except OSError as error:
        yield fail(check, f"could not be checked: {error_text(error)}", advice(error))


def _file(project: Project) -> tuple[Finding, tuple[LoadedRun, ...]]:
    """The project's file, and the runs of it that ranks of this machine are for."""
    file = project.shown
    try:
        content = read_file(project)
    except InvalidInput as error:
        errors = [finding for finding in error.diagnostics if finding.severity is Severity.ERROR]
        first = f": {errors[0].summary}" if errors else ""
        hint = f"`sgpu validate {file}` shows all of it"
        return fail("file", f"{error.message}{first}", hint), ()
    except SgpuError as error:
        return fail("file", error.message, error.hint), ()
    loaded = content.loaded
    here = tuple(run for run in loaded.runs if not is_remote(run.config.backend.kind))
    warnings = f", {len(content.findings)} warnings" if content.findings else ""
    away = len(loaded.runs) - len(here)
    elsewhere = f", {away} of them elsewhere" if away else ""
    return ok(
        "file",
        f"`{file}` is valid; number of runs: {len(loaded.runs)}{elsewhere}{warnings}",
    ), here


def _check_runs(runs: tuple[LoadedRun, ...], project: Project) -> Iterator[Finding]:
    """All findings are warnings: a run that this machine refuses may be for another target."""
    problems: dict[tuple[str, str | None], list[str]] = {}
    for run in runs:
        for diagnostic in _against(run, project):
            problem = (diagnostic.summary, diagnostic.hint)
            problems.setdefault(problem, []).append(str(run.address))
    for (summary, hint), addresses in problems.items():
        yield warn("runs", f"{few(addresses)}: {summary}", hint)
    if runs and not problems:
        yield ok("runs", "this machine has what the runs need")


def _against(run: LoadedRun, project: Project) -> Iterator[Diagnostic]:
    survey = project.survey(run.config.backend.kind)
    if survey is None:
        return
    for item in survey.check(run.config, run.places, yaml_folder(project), called=False):
        if item.severity is not Severity.INFO and item.code not in _OF_OTHER_CHECKS:
            yield item
