"""From a plan to its end: show, approve, apply, follow, answer."""

import shlex
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TextIO

from sgpu_decl.api import RolloutEvents
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
from sgpu_decl.errors import Interrupted, SgpuError, StalePlan
from sgpu_decl.model.address import Address
from sgpu_decl.model.attempt import AttemptRef
from sgpu_decl.model.event import ApplyEvent, Step
from sgpu_decl.model.plan import Action, Change, Plan
from sgpu_decl.model.plan_options import PlanOptions
from sgpu_decl.views.apply_text import event_line
from sgpu_decl.views.status_json import status_objects
from sgpu_decl.views.status_text import tally

if TYPE_CHECKING:
    from sgpu_decl.api import Applied, Prepared, Session
    from sgpu_decl.diagnostics.diagnostic import Diagnostic
    from sgpu_decl.model.jsonable import Json
    from sgpu_decl.model.step_progress import Progress

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
    source: "PlanOptions | Prepared",
    *,
    settings: ApplySettings,
    out: TextIO,
    on_approval: "Callable[[], None]" = lambda: None,
    events: EventFile = NO_EVENTS,
) -> int:
    """Carry a plan out and return the exit code.

    Args:
        source: what to plan, or a saved plan. If another sgpu changes the state before the plan is
            applied, it is made again, and shown and approved again only if it differs.
        on_approval: is called once, after the first approval and before anything is changed.
        events: takes what happens.
    """
    screen = _ApplyScreen(
        session=session,
        settings=settings,
        out=out,
        on_approval=on_approval,
        events=events,
        saved=not isinstance(source, PlanOptions),
    )
    with screen.counting:
        try:
            prepared, applied = session.roll_out(
                source, screen, parallelism=settings.parallelism, reviewed=settings.reviewed
            )
        except _Shown as refusal:
            return events.ended(refusal.error)
        return events.ended(screen.followed(prepared, applied))


class _Shown(Exception):
    """An error that was shown with its plan."""

    def __init__(self, error: SgpuError) -> None:
        super().__init__(error)
        self.error = error


@dataclass(kw_only=True)
class _ApplyScreen(RolloutEvents):
    """Shows what happens, and asks for approval. From then on signals are counted, while `counting`
    is open."""

    session: "Session"
    settings: ApplySettings
    out: TextIO
    on_approval: "Callable[[], None]"
    events: EventFile
    saved: bool
    signals: Signals = field(default_factory=Signals)
    counting: ExitStack = field(default_factory=ExitStack)
    copying: SharedProgress | None = None
    plans: int = 0
    pending: int = 0
    stopped: bool = False
    changes: "Mapping[Address, Change]" = field(default_factory=dict)

    def planning(self) -> "AbstractContextManager[Progress]":
        return open_progress()

    def planned(self, prepared: "Prepared", *, same: bool) -> None:
        plan, settings = prepared.plan, self.settings
        if not same:
            self.events.plan(prepared)
            self._show(prepared)
            refuse_ranks(settings.ranks, _world_sizes(plan))
            if settings.reviewed:
                self.session.check_reviewed(prepared)
            approve(
                plan,
                auto=settings.auto,
                saved=self.saved or settings.reviewed,
                question=settings.question,
                unattended=settings.unattended,
                replacing=settings.replacing,
            )
        if not self.plans:
            self.on_approval()
        self.plans += 1
        self.stopped = False
        self.changes = {change.address: change for change in plan.changes}
        self.pending = sum(change.action is not Action.NO_OP for change in plan.changes)
        self.counting.enter_context(self.signals)

    @contextmanager
    def staging(self) -> "Iterator[Progress]":
        with open_progress() as progress:
            yield _Interruptible(progress, self.signals)

    @contextmanager
    def launching(self) -> "Iterator[Progress]":
        with open_progress() as progress:
            self.copying = SharedProgress(progress)
            yield self.copying

    def noticed(self, findings: "tuple[Diagnostic, ...]") -> None:
        self.events.diagnostics(findings)
        for finding in findings:
            note(f"{finding.severity}[{finding.code}]: {finding.summary}")
            if finding.hint:
                note(f"hint: {finding.hint}")

    def changed(self, event: ApplyEvent) -> None:
        self.stopped = self.stopped or event.step is Step.STOPPED
        self.events.change(event)
        change = self.changes.get(event.address)
        upstreams = tuple(upstream.ref for upstream in change.after) if change else ()
        line = event_line(event, after=upstreams)
        if line is not None and self.copying is not None:
            self.copying.note(line)
        self.pending -= event.step in _DONE
        # After the last change, `attach` decides what a signal means.
        if self.signals.any and event.step in _DONE and self.pending > 0:
            raise Interrupted(
                "interrupted while the plan was being carried out",
                hint="launched runs continue; run the command again to launch the rest",
            )

    def waiting(self) -> None:
        if self.signals.any and self.stopped:
            raise Interrupted(
                "interrupted while attempts that are replaced stopped",
                hint="launched runs continue; run the command again to launch the rest",
            )
        if self.signals.any:
            raise Interrupted(
                "interrupted while another sgpu held the lock of the state",
                hint="nothing was launched; the same command again does it",
            )

    def moved(self, why: StalePlan) -> None:
        self.counting.close()
        if self.plans == 1:
            note(f"note: {why.message}: planning again")

    def _show(self, prepared: "Prepared") -> None:
        """Show a plan. If it cannot be applied, raise its error once that is shown."""
        plan, settings = prepared.plan, self.settings
        error = plan_error(plan)
        if error is not None and settings.json:
            answer({"plan": plan_object(prepared)}, error=error)
            raise _Shown(error)
        if not settings.json:
            show(plan_text(plan, self.out), nl=False)
        elif interactive() and not (settings.auto or self.saved):
            note(plan_text(plan, sys.stderr).rstrip("\n"))
        if error is not None:
            show_error(error)
            raise _Shown(error)

    def followed(self, prepared: "Prepared", applied: "Applied") -> SgpuError | None:
        """Follow what runs, and answer; return the error that was shown."""
        session, settings = self.session, self.settings
        refs = (*applied.launched, *applied.adopted)
        end = FollowEnd.ENDED
        if not settings.detach:
            if refs:
                end = attach(
                    session,
                    refs,
                    ranks=settings.ranks,
                    out=sys.stderr if settings.json else self.out,
                    signals=self.signals,
                    events=self.events,
                )
            if end is FollowEnd.ENDED:
                await_stops(session, applied.stopping, self.signals)
            self.noticed(session.record_ended())
        # Else nothing is said of its state.
        shown = settings.json or not settings.detach or len(refs) > 1
        views = session.runs.describe(refs) if refs and shown else []
        error = applied.unpushed or (applied.failed[0][1] if applied.failed else None)
        if error is None and not settings.detach:
            error = outcome_error(session, views, end)
        error = error or failed_runs_error(prepared.plan)
        if settings.json:
            data: Json = {
                "plan": plan_object(prepared),
                "attempts": [str(ref) for ref in refs],
                "attached": not settings.detach and end is FollowEnd.ENDED,
                "runs": status_objects(views),
            }
            answer(data, error=error)
            return error
        if len(views) > 1:
            note(tally([view.state_word for view in views]))
        elif not settings.detach and end is not FollowEnd.DETACHED:
            show_endings(session, views, shown=settings.ranks)
        if refs and settings.detach:
            active = [str(view.ref) for view in views if view.state.active]
            note(_follow_hint(refs, active))
        if error is not None and end is not FollowEnd.DETACHED:
            show_error(error)
        return error


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


def _world_sizes(plan: Plan) -> list[int]:
    """The number of ranks of each run that a plan launches."""
    counts = [
        rank_count(change.launch.inputs.spec)
        for change in plan.changes
        if change.launch and change.launches
    ]
    return [count for count in counts if count is not None]


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
