"""What stopping an active attempt throws away, as a check that people and programs can read."""

from collections.abc import Sequence
from datetime import datetime

from sgpu_decl.diagnostics.diagnostic import Severity
from sgpu_decl.diagnostics.durations import duration
from sgpu_decl.model.plan import Check
from sgpu_decl.model.state import Attempt
from sgpu_decl.planning.estimate import gpus_of
from sgpu_decl.planning.field_changes import parse

WORK_LOST = "work_lost"


def work_lost(attempts: Sequence[Attempt], now: datetime) -> tuple[Check, ...]:
    """Return one check for each active attempt that a change stops: GPUs it holds and their time
    so far, where they are known."""
    return tuple(
        Check(
            id=WORK_LOST,
            severity=Severity.WARNING,
            address=attempt.ref.address,
            summary=_summary(attempt, now),
        )
        for attempt in attempts
    )


def _summary(attempt: Attempt, now: datetime) -> str:
    gpus = gpus_of(parse(attempt.inputs.spec))
    held = "without a GPU" if gpus == 0 else f"on {gpus} GPU{'' if gpus == 1 else 's'}"
    if attempt.started_at is None:
        return f"`{attempt.ref}` is {attempt.state}, {held}"
    seconds = max(0.0, (now - attempt.started_at).total_seconds())
    ran = f"`{attempt.ref}` has been {attempt.state} for {duration(seconds)} {held}"
    return ran if gpus == 0 else f"{ran}: {_gpu_time(gpus * seconds)} so far"


def _gpu_time(seconds: float) -> str:
    hours = seconds / 3600
    return f"{hours:,.1f} GPU hours" if hours >= 0.1 else f"{seconds:.0f} GPU seconds"
