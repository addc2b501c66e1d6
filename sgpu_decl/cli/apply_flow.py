"""From a plan to its end: show, approve, apply, follow, answer."""

import shlex
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sgpu_decl.api import RolloutEvents
from sgpu_decl.cli.approval import approve
from sgpu_decl.cli.desktop_notice import ring
from sgpu_decl.cli.error_exit import show_error
from sgpu_decl.cli.event_file import NO_EVENTS, EventFile
from sgpu_decl.cli.interrupts import Signals
from sgpu_decl.cli.next_steps import plan_object
from sgpu_decl.cli.options import rank_count, refuse_ranks
from sgpu_decl.cli.plan_errors import failed_runs_error, plan_error
from sgpu_decl.cli.progress import SharedProgress, open_progress
from sgpu_decl.cli.run_endings import FollowEnd, await_stops, outcome_error, show_endings
from sgpu_decl.cli.run_follower import attach
from sgpu_decl.cli.terminal_output import answer, interactive, note, plan_text, show
from sgpu_decl.errors import Interrupted, SgpuError, StalePlan
from sgpu_decl.model.address import Address
from sgpu_decl.model.attempt import AttemptRef
from sgpu_decl.model.event import ApplyEvent, Step
from sgpu_decl.model.plan import Action, Change, Plan
from sgpu_decl.model.plan_options import PlanOptions
from sgpu_decl.views.progress_text import event_line
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


class _Shown(Exception):
    """An error that was shown with its plan."""

    def __init__(self, error: SgpuError) -> None:
        super().__init__(error)
        self.error = error


@dataclass(kw_only=True)
class ApplyScreen(RolloutEvents):
    """Shows what happens, asks for approval, and follows what runs.

    Attributes:
        auto: whether nobody is asked.
        ranks: those whose output is shown; `None` for all.
        notify: whether the terminal rings and the desktop is notified once all runs have ended.
        question: what is asked; `unattended` is the hint if nobody can answer.
        replacing: the hint if nobody can type the name of an active run that is to be stopped.
        reviewed: whether proposals show all of it, so that nobody is asked.
        parallelism: how many launches overlap.
        on_approval: is called once, after the first approval and before anything is changed.
        events: takes what happens.
    """

    session: "Session"
    auto: bool
    ranks: tuple[int, ...] | None
    detach: bool
    json: bool
    question: str
    unattended: str
    replacing: str = ""
    reviewed: bool = False
    notify: bool = False
    parallelism: int = 1
    on_approval: "Callable[[], None]" = lambda: None
    events: EventFile = NO_EVENTS
    _saved: bool = False
    _signals: Signals = field(default_factory=Signals)
    _counting: ExitStack = field(default_factory=ExitStack)  # signals, from the approval on
    _copying: SharedProgress | None = None
    _plans: int = 0
    _pending: int = 0
    _stopped: bool = False
    _changes: "Mapping[Address, Change]" = field(default_factory=dict)

    def carry_out(self, source: "PlanOptions | Prepared") -> int:
        """Carry out what is planned, or a saved plan, and return the exit code. If another sgpu
        changes the state before that, it is planned again, and shown again only if it differs."""
        self._saved = not isinstance(source, PlanOptions)
        with self._counting:
            try:
                prepared, applied = self.session.roll_out(
                    source, self, parallelism=self.parallelism, reviewed=self.reviewed
                )
            except _Shown as refusal:
                return self.events.ended(refusal.error)
            return self.events.ended(self._follow(prepared, applied))

    def planning(self) -> "AbstractContextManager[Progress]":
        return open_progress()

    def planned(self, prepared: "Prepared", *, same: bool) -> None:
        plan = prepared.plan
        if not same:
            self.events.plan(prepared)
            self._show(prepared)
            refuse_ranks(self.ranks, _world_sizes(plan))
            if self.reviewed:
                self.session.check_reviewed(prepared)
            approve(
                plan,
                auto=self.auto,
                saved=self._saved or self.reviewed,
                question=self.question,
                unattended=self.unattended,
                replacing=self.replacing,
            )
        if not self._plans:
            self.on_approval()
        self._plans += 1
        self._stopped = False
        self._changes = {change.address: change for change in plan.changes}
        self._pending = sum(change.action is not Action.NO_OP for change in plan.changes)
        self._counting.enter_context(self._signals)

    @contextmanager
    def staging(self) -> "Iterator[Progress]":
        with open_progress() as progress:
            yield _Interruptible(progress, self._signals)

    @contextmanager
    def launching(self) -> "Iterator[Progress]":
        with open_progress() as progress:
            self._copying = SharedProgress(progress)
            yield self._copying

    def noticed(self, findings: "tuple[Diagnostic, ...]") -> None:
        self.events.diagnostics(findings)
        for finding in findings:
            note(f"{finding.severity}[{finding.code}]: {finding.summary}")
            if finding.hint:
                note(f"hint: {finding.hint}")

    def changed(self, event: ApplyEvent) -> None:
        self._stopped = self._stopped or event.step is Step.STOPPED
        self.events.change(event)
        change = self._changes.get(event.address)
        upstreams = tuple(upstream.ref for upstream in change.after) if change else ()
        line = event_line(event, after=upstreams)
        if line is not None and self._copying is not None:
            self._copying.note(line)
        self._pending -= event.step in _DONE
        # After the last change, `attach` decides what a signal means.
        if self._signals.any and event.step in _DONE and self._pending > 0:
            raise Interrupted(
                "interrupted while the plan was being carried out",
                hint="launched runs continue; run the command again to launch the rest",
            )

    def waiting(self) -> None:
        if self._signals.any and self._stopped:
            raise Interrupted(
                "interrupted while attempts that are replaced stopped",
                hint="launched runs continue; run the command again to launch the rest",
            )
        if self._signals.any:
            raise Interrupted(
                "interrupted while another sgpu held the lock of the state",
                hint="nothing was launched; run the command again",
            )

    def moved(self, why: StalePlan) -> None:
        self._counting.close()
        if self._plans == 1:
            note(f"note: {why.message}: planning again")

    def _show(self, prepared: "Prepared") -> None:
        """Show a plan. If it cannot be applied, raise its error once that is shown."""
        plan = prepared.plan
        error = plan_error(plan)
        if error is not None and self.json:
            answer({"plan": plan_object(prepared)}, error=error)
            raise _Shown(error)
        if not self.json:
            show(plan_text(plan, sys.stdout), nl=False)
        elif interactive() and not (self.auto or self._saved):
            note(plan_text(plan, sys.stderr).rstrip("\n"))
        if error is not None:
            show_error(error)
            raise _Shown(error)

    def _follow(self, prepared: "Prepared", applied: "Applied") -> SgpuError | None:
        """Follow what runs, and answer; return the error that was shown."""
        session = self.session
        refs = (*applied.launched, *applied.adopted)
        end = FollowEnd.ENDED
        if not self.detach:
            if refs:
                end = attach(
                    session,
                    refs,
                    ranks=self.ranks,
                    out=sys.stderr if self.json else sys.stdout,
                    signals=self._signals,
                    events=self.events,
                )
            if end is FollowEnd.ENDED:
                await_stops(session, applied.stopping, self._signals)
            self.noticed(session.record_ended())
        # Else nothing is said of its state.
        shown = self.json or not self.detach or len(refs) > 1
        views = session.runs.describe(refs) if refs and shown else []
        if views and end is FollowEnd.ENDED:
            from sgpu_decl.cli.report import upload_reports

            upload_reports(session, views)
        error = applied.unpushed or (applied.failed[0][1] if applied.failed else None)
        if error is None and not self.detach:
            error = outcome_error(session, views, end)
        error = error or failed_runs_error(prepared.plan)
        if self.notify and end is not FollowEnd.DETACHED:
            ring(views)
        if self.json:
            data: Json = {
                "plan": plan_object(prepared),
                "attempts": [str(ref) for ref in refs],
                "attached": not self.detach and end is FollowEnd.ENDED,
                "runs": status_objects(views),
            }
            answer(data, error=error)
            return error
        if len(views) > 1:
            note(tally([view.state_word for view in views]))
        elif not self.detach and end is not FollowEnd.DETACHED:
            show_endings(session, views, shown=self.ranks)
        if refs and self.detach:
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
                hint="nothing was launched; run the command again to continue",
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
        going_on = "they continue"
    else:
        going_on = f"{len(active):,} of them continue" if active else "all have ended"
    return f"{going_on}: see `sgpu status`, and `sgpu logs -f {first}`{of_one}"
