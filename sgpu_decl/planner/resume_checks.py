"""What a launch with `resume` finds of earlier attempts, as checks of the plan."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from sgpu_decl.diagnostics.diagnostic import Diagnostic, Severity
from sgpu_decl.model.address import Address
from sgpu_decl.model.attempt import AttemptRef
from sgpu_decl.model.desired import DesiredRun
from sgpu_decl.planner.plan_checks import place_of


def resume_checks(
    launched: Sequence[DesiredRun], outputs: Mapping[Address, AttemptRef | None]
) -> tuple[Diagnostic, ...]:
    """Return one check for each run that resumes, or for all cells of its matrix.

    Args:
        launched: runs that the plan launches.
        outputs: the attempt of each whose output the next one finds, None if there is none; what is
            not known is left out.
    """
    by_name: dict[str, list[DesiredRun]] = {}
    for run in launched:
        if run.address in outputs:
            by_name.setdefault(run.address.name, []).append(run)
    return tuple(
        Diagnostic(
            code="resumes",
            severity=Severity.INFO,
            address=str(runs[0].address if len(runs) == 1 else replace(runs[0].address, key="")),
            summary=_of_one(outputs[runs[0].address])
            if len(runs) == 1
            else _of_cells(name, [outputs[run.address] for run in runs]),
            place=place_of(runs[0].places, "resume"),
        )
        for name, runs in by_name.items()
    )


def _of_one(earlier: AttemptRef | None) -> str:
    if earlier is None:
        return "no earlier attempt left output: it starts from the beginning"
    return f"it finds the output of `{earlier}` in SGPU_PREVIOUS_OUTPUT_DIR"


def _of_cells(name: str, earlier: Sequence[AttemptRef | None]) -> str:
    finding = sum(one is not None for one in earlier)
    if not finding:
        return f"no earlier attempt of `{name}` left output: all start from the beginning"
    return (
        f"{finding:,} of {len(earlier):,} runs of `{name}` find the output of their last attempt "
        "in SGPU_PREVIOUS_OUTPUT_DIR"
    )
