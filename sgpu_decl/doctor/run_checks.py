"""The errors and warnings of `sgpu plan` about runs on this machine: GPUs, secrets, tracking."""

from collections.abc import Iterator

from sgpu_decl.config.loaded import LoadedRun
from sgpu_decl.diagnostics.diagnostic import Diagnostic, Severity
from sgpu_decl.doctor.interpreter_checks import yaml_folder
from sgpu_decl.model.doctor_finding import Finding, few, ok, warn
from sgpu_decl.planning.project import Project

_CHECK = "runs"
# Other checks report these, also without a run.
_OF_OTHER_CHECKS = frozenset({
    "interpreter_untrusted", "locks_elsewhere", "mlflow_missing", "no_lock_folder",
    "python_missing",
})  # fmt: skip


def check_runs(runs: tuple[LoadedRun, ...], project: Project) -> Iterator[Finding]:
    """All findings are warnings: a run that this machine refuses may be for another target."""
    problems: dict[tuple[str, str | None], list[str]] = {}
    for run in runs:
        for diagnostic in _against(run, project):
            problem = (diagnostic.summary, diagnostic.hint)
            problems.setdefault(problem, []).append(str(run.address))
    for (summary, hint), addresses in problems.items():
        yield warn(_CHECK, f"{few(addresses)}: {summary}", hint)
    if runs and not problems:
        yield ok(_CHECK, "this machine has what the runs need")


def _against(run: LoadedRun, project: Project) -> Iterator[Diagnostic]:
    survey = project.survey(run.config.backend.kind)
    if survey is None:
        return
    for item in survey.check(run.config, run.places, yaml_folder(project), called=False):
        if item.severity is not Severity.INFO and item.code not in _OF_OTHER_CHECKS:
            yield item
