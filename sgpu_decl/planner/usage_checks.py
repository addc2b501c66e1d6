"""What a plan says of the GPUs that the last attempts of a run used."""

from collections.abc import Mapping, Sequence

from sgpu_decl.diagnostics.diagnostic import Diagnostic, Severity
from sgpu_decl.model.desired import DesiredRun
from sgpu_decl.model.run_usage import RunUsage, joined_usage, usage_words
from sgpu_decl.planner.plan_checks import place_of

PAST_ATTEMPTS = 5  # of each run, that are looked at


def usage_checks(
    launched: Sequence[DesiredRun], past: Mapping[str, Sequence[RunUsage]]
) -> tuple[Diagnostic, ...]:
    """Return one check for each of these runs whose last attempts used GPUs that were measured.

    Args:
        launched: runs that the plan launches.
        past: what the last attempts used, the newest first, by the address of the run.
    """
    checks = []
    for run in launched:
        used = [one for one in past.get(str(run.address), ()) if one.gpus]
        if not used:
            continue
        # Attempts that held something else say nothing of what the newest one held.
        held = (used[0].gpus, used[0].gpu_name)
        alike = [one for one in used if (one.gpus, one.gpu_name) == held]
        attempts = "attempt" if len(alike) == 1 else f"{len(alike)} attempts"
        checks.append(
            Diagnostic(
                code="past_usage",
                severity=Severity.INFO,
                address=str(run.address),
                summary=f"the last {attempts} {usage_words(joined_usage(alike))}",
                place=place_of(run.places, "gpus"),
            )
        )
    return tuple(checks)
