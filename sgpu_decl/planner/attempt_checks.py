"""What a plan says of attempts, as checks. Of those that cannot be asked from here: why, and what
they count for. Of those that it stops: what is thrown away."""

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from shlex import quote

from sgpu_decl.diagnostics.amounts import duration
from sgpu_decl.diagnostics.diagnostic import Diagnostic, Severity
from sgpu_decl.model.attempt_view import AttemptView
from sgpu_decl.model.state import Attempt
from sgpu_decl.planner.estimate import gpus_of
from sgpu_decl.planner.last_known import CurrentAttempts

_SHOWN = 3  # attempts that are named, where one place does not answer about many
_ID = "attempt_not_visible"


def unseen_checks(planned: Iterable[CurrentAttempts]) -> Iterator[Diagnostic]:
    """The checks about runs that are planned; attempts that are unavailable for the same reason
    share one."""
    silent: dict[str, list[AttemptView]] = {}
    for view in (view for attempts in planned for view in attempts.unseen):
        if view.hidden_from is not None or view.overdue:
            yield _hidden(view)
        else:
            silent.setdefault(view.unavailable or "", []).append(view)
    for views in silent.values():
        yield _unanswered(views)


def _hidden(view: AttemptView) -> Diagnostic:
    """Of an attempt that the platform hides from this user, or that must have ended since."""
    how = f"`{view.ref}` is not visible to `{view.hidden_from}`{_recorded(view)}"
    if view.hidden_from is None:
        how = f"`{view.ref}` cannot be asked from here{_recorded(view)}"
    counts = "it counts as active until it must have ended by its own limits"
    hint = "`sgpu status` records its end, if a user who may see the run calls it"
    if view.hidden_from is not None:
        hint += "; `permissions` with `level: view` let others see the next attempts"
    if view.overdue:
        counts = "it must have ended, and its result is not known"
        hint = f"`--rerun {quote(str(view.ref.address))}` launches it again; {hint}"
    return Diagnostic(
        code=_ID,
        severity=Severity.INFO,
        address=str(view.ref.address),
        summary=f"{how}; {counts}: {view.unavailable}",
        hint=hint,
    )


def _unanswered(views: list[AttemptView]) -> Diagnostic:
    """Of attempts that were active when their backend answered last, or when another machine
    recorded them."""
    first = views[0]
    named = [f"`{view.ref}`" for view in views]
    if len(named) > _SHOWN:
        named = [*named[: _SHOWN - 1], f"{len(named) - _SHOWN + 1:,} more"]
    text = " and ".join([", ".join(named[:-1]), named[-1]] if named[1:] else named)
    counts, is_over = "it counts as active until its end is known", first.way_out
    if named[1:]:
        counts = "they count as active until their ends are known"
        is_over = first.way_out and f"{first.way_out}; so for the others"
    return Diagnostic(
        code=_ID,
        severity=Severity.INFO,
        address=None if named[1:] else str(first.ref.address),
        summary=f"{text} cannot be asked now{_recorded(first)}; {counts}, and nothing is launched "
        f"in place of {'them' if named[1:] else 'it'}: {first.unavailable}",
        hint=is_over,
    )


def _recorded(view: AttemptView) -> str:
    since = view.unknown_since
    return f", recorded at {since:%Y-%m-%d %H:%M} UTC" if since is not None else ""


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
