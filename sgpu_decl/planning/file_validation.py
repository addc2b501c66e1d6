"""Checks of a file for each of its targets: those of planning that need neither this machine nor a
workspace."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from sgpu_decl.backends.base import Survey
from sgpu_decl.code.signatures import EntrypointChecks
from sgpu_decl.config.loaded import Loaded, LoadedRun
from sgpu_decl.diagnostics.diagnostic import Diagnostic, Severity, has_errors
from sgpu_decl.model.address import Address
from sgpu_decl.model.backend_kinds import capabilities_of
from sgpu_decl.model.desired import DesiredRun
from sgpu_decl.planner.plan_checks import run_checks
from sgpu_decl.planning.code_facts import entrypoint_findings
from sgpu_decl.planning.finding_places import check_key
from sgpu_decl.planning.location import absolute
from sgpu_decl.planning.project import Project
from sgpu_decl.planning.project_file import (
    Validated,
    ordered,
    overrides_of,
    text_of,
)
from sgpu_decl.planning.project_text import invalid_file
from sgpu_decl.planning.shared_state import misplaced_state

Readings = Mapping[str | None, tuple[Loaded | None, tuple[Diagnostic, ...]]]

# Codes of fields that are valid and that planning refuses in this version.
_LATER = frozenset({"backend_not_yet", "not_yet"})


def check_file(project: Project) -> Validated:
    """Read and check the file of a project: for the target that the command names, or for all.

    Raises:
        NotFound: there is no file.
        InvalidInput: it holds errors; all of them are in `diagnostics`.
    """
    readings = _readings(project)
    assert project.file is not None  # noqa: S101  it was read
    own = next(iter(readings))
    folder = absolute(project.file).parent
    unique: dict[tuple[object, ...], Diagnostic] = {}
    for target, (loaded, findings) in readings.items():
        known = _known(loaded, folder, project.shown, project.survey) if loaded is not None else ()
        for finding in (*findings, *known):
            unique.setdefault(
                _identity(finding),
                finding if target == own else _of_target(finding, target),
            )
    shown = ordered((*unique.values(), *misplaced_state(project)), project)
    loaded = readings[project.target][0]
    if loaded is None or has_errors(shown):
        raise invalid_file(project.shown, shown)
    read = [loaded, *(other for other, _ in readings.values() if other is not None)]
    return Validated(
        loaded=loaded,
        findings=shown,
        targets=tuple(target for target in readings if target is not None),
        runs=_once(run.address for one in read for run in one.runs),
        jobs=_once(job.address for one in read for job in one.jobs),
    )


def _once(addresses: Iterable[Address]) -> tuple[Address, ...]:
    return tuple(dict.fromkeys(addresses))


def _readings(project: Project) -> Readings:
    text, overrides = text_of(project), overrides_of(project)
    files, _ = text.parsed
    declared = files.targets if files is not None else ()
    targets = (project.target,) if project.target_named else (None, *declared, project.target)
    return {
        target: text.values(replace(overrides, target=target)) for target in dict.fromkeys(targets)
    }


def _identity(finding: Diagnostic) -> tuple[object, ...]:
    """What makes a finding the same for several targets. A key stands in one place: the path that
    its summary names differs between the target's block and the merged run."""
    if finding.code == "unknown_key":
        return finding.code, finding.place
    return finding.code, finding.summary, finding.place


def _of_target(finding: Diagnostic, target: str | None) -> Diagnostic:
    return replace(finding, summary=f"{finding.summary} (target `{target}`)")


def _known(
    loaded: Loaded, folder: Path, shown: str, survey: Callable[[str], Survey | None]
) -> Iterator[Diagnostic]:
    """The findings of planning that need only the file and the code. A field that this version
    cannot act on yet is a warning, since the file is valid."""
    backends = {str(run.config.backend.kind) for run in loaded.runs}
    for check in run_checks(map(_desired, loaded.runs), capabilities_of(*backends)):
        severity = Severity.WARNING if check.code in _LATER else check.severity
        yield replace(check, severity=severity, address=None)
    checks: dict[str, EntrypointChecks] = {}
    for run in {check_key(run): run for run in reversed(loaded.runs)}.values():
        root = run.config.code.root or "."
        if root not in checks:
            checks[root] = EntrypointChecks((folder / root).resolve())
        yield from entrypoint_findings(run, checks[root], shown, lambda _: True)
        backend = survey(str(run.config.backend.kind))
        if backend is not None:
            for finding in backend.rules(run.config, run.places, folder):
                if finding.severity is not Severity.INFO:
                    yield finding


def _desired(run: LoadedRun) -> DesiredRun:
    return DesiredRun(
        address=run.address,
        backend=str(run.config.backend.kind),
        owner="",
        spec=run.spec,
        until=str(run.config.until),
        on_active=str(run.config.on_active),
        places=run.places,
    )
