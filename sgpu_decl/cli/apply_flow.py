"""From a plan to its end: show, approve, apply, follow, answer."""

import shlex
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, TextIO

from sgpu_decl.cli.approval import approve
from sgpu_decl.cli.error_exit import show_error
from sgpu_decl.cli.event_file import NO_EVENTS, EventFile
from sgpu_decl.cli.interrupts import Signals
from sgpu_decl.cli.next_steps import plan_object
from sgpu_decl.cli.options import rank_count, refuse_ranks
from sgpu_decl.cli.plan_errors import failed_runs_error, plan_error
from sgpu_decl.cli.run_endings import FollowEnd, await_stops, outcome_error, show_endings
from sgpu_decl.cli.run_follower import attach
from sgpu_decl.cli.staging_progress import SharedProgress, open_progress
from sgpu_decl.cli.terminal_output import answer, interactive, note, plan_text, show
from sgpu_decl.errors import Interrupted, SgpuError, StalePlan, StateMoved
from sgpu_decl.frozen_dataclass import dataclass
from sgpu_decl.model.attempt import AttemptRef
from sgpu_decl.model.event import ApplyEvent, Step
from sgpu_decl.model.plan import Action, Plan
from sgpu_decl.views.apply_text import event_line
from sgpu_decl.views.status_json import status_objects
from sgpu_decl.views.status_text import tally

if TYPE_CHECKING:
    from sgpu_decl.api import Prepared, Session
    from sgpu_decl.diagnostics.diagnostic import Diagnostic
    from sgpu_decl.model.attempt_view import AttemptView
    from sgpu_decl.model.jsonable import Json
    from sgpu_decl.model.step_progress import Progress

__all__ = ["ApplySettings", "carry_out"]


# The steps that end a change: a signal may stop the apply after one of them.
_DONE = frozenset(
    {
        Step.LAUNCHED,
        Step.CREATED,
        Step.ADOPTED,
        Step.UPDATED,
        Step.STAGED,
        Step.FORGOTTEN,
        Step.DESTROYED,
        Step.FAILED,
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ApplySettings:
    """The options of the command line. `ranks` are those whose output is shown, `None` for all.
    `parallelism` is how many launches overlap. What is `reviewed` needs no approval. `unattended`
    is the hint if nobody can answer `question`, `replacing` if nobody can type the name of an
    active run that is to be stopped."""

    auto: bool
    reviewed: bool = False
    ranks: tuple[int, ...] | None
    detach: bool
    json: bool
    question: str
    unattended: str
    replacing: str = ""
    parallelism: int = 1


def carry_out(
    session: "Session",
    plan_source: "Prepared | Callable[[], Prepared]",
    *,
    settings: ApplySettings,
    out: TextIO,
    on_approval: "Callable[[], None]" = lambda: None,
    events: EventFile = NO_EVENTS,
) -> int:
    """Carry a plan out and return the exit code.

    Args:
        plan_source: a saved plan, or a function that makes the plan. If another sgpu changes the
            state before the plan is applied, the function is called again. The new plan is shown
            and approved again only if it differs.
        on_approval: is called once, after the first approval and before anything is changed.
        events: takes what happens.
    """
    prepared, again = (plan_source(), plan_source) if callable(plan_source) else (plan_source, None)
    before: Prepared | None = None
    while True:
        plan = prepared.plan
        if before is None or not _same_changes(before, prepared):
            events.plan(prepared)
            error = _show(prepared, settings=settings, saved=again is None, out=out)
            if error is not None:
                return events.ended(error)
            refuse_ranks(settings.ranks, _world_sizes(plan))
            if settings.reviewed:
                session.check_reviewed(prepared)
            approve(
                plan,
                auto=settings.auto,
                saved=again is None or settings.reviewed,
                question=settings.question,
                unattended=settings.unattended,
                replacing=settings.replacing,
            )
        if before is None:
            on_approval()
        try:
            with Signals() as signals:
                error = _apply(
                    session, prepared, settings=settings, signals=signals, out=out, events=events
                )
                return events.ended(error)
        except StalePlan as moved:
            # Two plans that were made in the same millisecond are the same plan.
            twin = moved.code == "plan_applied"
            if again is None or not (twin or isinstance(moved, StateMoved)):
                raise
            if before is None:
                note(f"note: {moved.message}: planning again")
            before, prepared = prepared, again()


def _world_sizes(plan: Plan) -> list[int]:
    """The number of ranks of each run that a plan launches."""
    counts = [
        rank_count(change.launch.inputs.spec)
        for change in plan.changes
        if change.launch and change.launches
    ]
    return [count for count in counts if count is not None]


def _same_changes(one: "Prepared", other: "Prepared") -> bool:
    """Whether two plans make the same changes, maybe of different states."""

    def compared(prepared: "Prepared") -> "dict[str, Json]":
        ignored = ("created_at", "lineage", "serial", "git")
        return {key: value for key, value in prepared.to_json().items() if key not in ignored}

    return compared(one) == compared(other)


def _show(
    prepared: "Prepared", *, settings: ApplySettings, saved: bool, out: TextIO
) -> SgpuError | None:
    """Show a plan. If it cannot be applied, show and return the error."""
    plan = prepared.plan
    error = plan_error(plan)
    if error is not None and settings.json:
        answer({"plan": plan_object(prepared)}, error=error)
        return error
    if not settings.json:
        show(plan_text(plan, out), nl=False)
    elif interactive() and not (settings.auto or saved):
        note(plan_text(plan, sys.stderr).rstrip("\n"))
    if error is not None:
        show_error(error)
    return error


def _apply(
    session: "Session",
    prepared: "Prepared",
    *,
    settings: ApplySettings,
    signals: Signals,
    out: TextIO,
    events: EventFile,
) -> SgpuError | None:
    """Apply, follow and answer; return the error that was shown."""
    plan = prepared.plan
    pending = sum(change.action is not Action.NO_OP for change in plan.changes)

    changes = {change.address: change for change in plan.changes}
    stopped = False

    def sink(event: ApplyEvent) -> None:
        nonlocal pending, stopped
        stopped = stopped or event.step is Step.STOPPED
        events.change(event)
        change = changes.get(event.address)
        upstreams = tuple(upstream.ref for upstream in change.after) if change else ()
        line = event_line(event, after=upstreams)
        if line is not None:
            copying.note(line)
        pending -= event.step in _DONE
        # After the last change, `attach` decides what a signal means.
        if signals.any and event.step in _DONE and pending > 0:
            raise Interrupted(
                "interrupted while the plan was being carried out",
                hint="launched runs continue; run the command again to launch the rest",
            )

    def waiting() -> None:
        if signals.any and stopped:
            raise Interrupted(
                "interrupted while attempts that are replaced stopped",
                hint="launched runs continue; run the command again to launch the rest",
            )
        if signals.any:
            raise Interrupted(
                "interrupted while another sgpu held the lock of the state",
                hint="nothing was launched; the same command again does it",
            )

    with open_progress() as progress:
        staged, findings = session.stage(prepared, progress=_Interruptible(progress, signals))
    _show_findings(findings, events)
    with open_progress() as progress:
        copying = SharedProgress(progress)
        applied = session.apply(
            staged,
            sink=sink,
            parallelism=settings.parallelism,
            on_wait=waiting,
            reviewed=settings.reviewed,
            progress=copying,
        )
    _show_findings(applied.unrecorded, events)
    refs = (*applied.launched, *applied.adopted)
    end = FollowEnd.ENDED
    if not settings.detach:
        if refs:
            stream = sys.stderr if settings.json else out
            end = attach(
                session, refs, ranks=settings.ranks, out=stream, signals=signals, events=events
            )
        if end is FollowEnd.ENDED:
            await_stops(session, applied.stopping, signals)
        _show_findings(session.record_ended(), events)
    shown = (
        settings.json or not settings.detach or len(refs) > 1
    )  # else nothing is said of its state
    views = session.runs.describe(refs) if refs and shown else []
    error = applied.unpushed or (applied.failed[0][1] if applied.failed else None)
    if error is None and not settings.detach:
        error = outcome_error(session, views, end)
    error = error or failed_runs_error(plan)
    _answer(session, prepared, settings=settings, refs=refs, views=views, end=end, error=error)
    return error


def _show_findings(findings: "tuple[Diagnostic, ...]", events: EventFile) -> None:
    events.diagnostics(findings)
    for finding in findings:
        note(f"{finding.severity}[{finding.code}]: {finding.summary}")
        if finding.hint:
            note(f"hint: {finding.hint}")


class _Interruptible:
    """A progress that lets a signal stop staging, before the first effect."""

    def __init__(self, progress: "Progress", signals: Signals) -> None:
        self._progress = progress
        self._signals = signals

    def advance(self, phase: str, done: int, total: int) -> None:
        if self._signals.any:
            raise Interrupted(
                "interrupted while code and environment were prepared",
                hint="nothing was launched; the same command again goes on where it stopped",
            )
        self._progress.advance(phase, done, total)


def _answer(
    session: "Session",
    prepared: "Prepared",
    *,
    settings: ApplySettings,
    refs: tuple[AttemptRef, ...],
    views: "list[AttemptView]",
    end: FollowEnd,
    error: SgpuError | None,
) -> None:
    if settings.json:
        data: Json = {
            "plan": plan_object(prepared),
            "attempts": [str(ref) for ref in refs],
            "attached": not settings.detach and end is FollowEnd.ENDED,
            "runs": status_objects(views),
        }
        answer(data, error=error)
        return
    if len(views) > 1:
        note(tally([view.state_word for view in views]))
    elif not settings.detach and end is not FollowEnd.DETACHED:
        show_endings(session, views, shown=settings.ranks)
    if refs and settings.detach:
        note(_follow_hint(refs, [str(view.ref) for view in views if view.state.active]))
    if error is not None and end is not FollowEnd.DETACHED:
        show_error(error)


def _follow_hint(refs: tuple[AttemptRef, ...], active: list[str]) -> str:
    """Where to look. `active` are those of several that have not ended by now."""
    if len(refs) == 1:
        name = shlex.quote(refs[0].address.label)
        return f"follow with `sgpu logs -f {name}`"
    names = {ref.address.name for ref in refs}  # that of a matrix follows all its cells
    first = refs[0].address.name  # others may come after it
    of_one = " for one of them" if len(names) > 1 else ""
    if len(active) == len(refs):
        going_on = "they go on"
    else:
        going_on = f"{len(active):,} of them go on" if active else "all have ended"
    return f"{going_on}: see `sgpu status`, and `sgpu logs -f {first}`{of_one}"
