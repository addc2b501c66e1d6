"""What stopping an active attempt throws away, as a check that people and programs can read."""

from collections.abc import Sequence
from datetime import datetime

from sgpu_decl.diagnostics.amounts import duration
from sgpu_decl.diagnostics.diagnostic import Diagnostic, Severity
from sgpu_decl.model.state import Attempt
from sgpu_decl.planner.estimate import gpus_of
from sgpu_decl.planner.last_known import CurrentAttempts

WORK_LOST = "work_lost"


def work_lost(
    stopped: Sequence[Attempt], attempts: CurrentAttempts, now: datetime
) -> tuple[Diagnostic, ...]:
    """Return one check for each active attempt of a run that a change stops: GPUs it holds and
    their time so far, where they are known."""
    unseen = {view.ref for view in attempts.unseen}
    return tuple(
        Diagnostic(
            code=WORK_LOST,
            severity=Severity.WARNING,
            address=str(attempt.ref.address),
            summary=_summary(attempt, None if attempt.ref in unseen else now),
        )
        for attempt in stopped
    )


def _summary(attempt: Attempt, now: datetime | None) -> str:
    """`now` is None where nobody can say how long it has run."""
    gpus = gpus_of(attempt.inputs.spec.fields)
    held = "without a GPU" if gpus == 0 else f"on {gpus} GPU{'' if gpus == 1 else 's'}"
    if now is None:
        return f"`{attempt.ref}` was {attempt.state} as far as is known, {held}"
    if attempt.started_at is None:
        return f"`{attempt.ref}` is {attempt.state}, {held}"
    seconds = max(0.0, (now - attempt.started_at).total_seconds())
    ran = f"`{attempt.ref}` has been {attempt.state} for {duration(seconds)} {held}"
    return ran if gpus == 0 else f"{ran}: {_gpu_time(gpus * seconds)} so far"


def _gpu_time(seconds: float) -> str:
    hours = seconds / 3600
    return f"{hours:,.1f} GPU hours" if hours >= 0.1 else f"{seconds:.0f} GPU seconds"
