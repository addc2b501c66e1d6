"""What a launch with `resume` finds of earlier attempts, as checks of the plan."""

from collections.abc import Sequence

from sgpu_decl.diagnostics.diagnostic import Severity
from sgpu_decl.model.desired import DesiredRun
from sgpu_decl.model.plan import Check
from sgpu_decl.planning.plan_checks import place_of


def resume_checks(launched: Sequence[DesiredRun]) -> tuple[Check, ...]:
    """Return one check for each run that resumes, or for all cells of its matrix."""
    by_name: dict[str, list[DesiredRun]] = {}
    for run in launched:
        if run.resumes:
            by_name.setdefault(run.address.name, []).append(run)
    return tuple(
        Check(
            id="resumes",
            severity=Severity.INFO,
            address=runs[0].address if len(runs) == 1 else None,
            summary=_of_one(runs[0]) if len(runs) == 1 else _of_cells(name, runs),
            place=place_of(runs[0].places, "resume"),
        )
        for name, runs in by_name.items()
    )


def _of_one(run: DesiredRun) -> str:
    if run.resumes_from is None:
        return "no earlier attempt left output: it starts from the beginning"
    return f"it finds the output of `{run.resumes_from}` in SGPU_PREVIOUS_OUTPUT_DIR"


def _of_cells(name: str, runs: Sequence[DesiredRun]) -> str:
    finding = sum(run.resumes_from is not None for run in runs)
    if not finding:
        return f"no earlier attempt of `{name}` left output: all start from the beginning"
    return (
        f"{finding:,} of {len(runs):,} runs of `{name}` find the output of their last attempt in "
        "SGPU_PREVIOUS_OUTPUT_DIR"
    )
