"""Follow a call until it has ended: the output of rank 0, and a line for each phase."""

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from sgpu_decl.config.call_config import CAPTURED
from sgpu_decl.diagnostics.diagnostic import Severity
from sgpu_decl.model.attempt import AttemptRef, AttemptState
from sgpu_decl.model.attempt_view import AttemptView
from sgpu_decl.model.plan import Plan
from sgpu_decl.views.plan_words import packages_amount
from sgpu_decl.views.progress_text import phase_line, restart_line, state_line
from sgpu_decl.views.rank_output_text import clean_lines
from sgpu_decl.views.status_text import ending, usage_line
from sgpu_decl.views.terminal import neutral
from sgpu_decl.views.tracking_text import tracked_line, tracking_notes

if TYPE_CHECKING:
    from sgpu_decl.api import Session
    from sgpu_decl.model.rank_output import LogLines

MOST_LINES = 2_000  # that a notebook keeps of a call or of a sweep; the logs have them all
_ANNOUNCED = (AttemptState.QUEUED, AttemptState.RUNNING, AttemptState.STOPPING)


def say(text: str) -> None:
    """A line of ours, beside what the ranks print."""
    print(neutral(f"sgpu: {text}"), file=sys.stderr, flush=True)  # noqa: T201  a caller sees it


class Phases:
    """A `Progress` that prints each phase once, when it begins."""

    def __init__(self) -> None:
        self._phase = ""

    def advance(self, phase: str, done: int, total: int) -> None:
        if phase != self._phase:
            self._phase = phase
            say(phase_line(phase, done, total, seconds=0))


def tell_plan(plan: Plan) -> None:
    """Print the changed packages and the warnings of a plan that is about to be launched."""
    for change in plan.changes:
        if change.environment is not None and change.environment.packages and change.prior:
            before = f"{change.address.label}#{change.prior.attempt}"
            say(f"{packages_amount(change.environment.packages)} since {before}")
    for check in plan.checks:
        hint = f" ({check.hint})" if check.hint else ""
        if check.severity is Severity.WARNING:
            say(f"warning[{check.code}]: {check.summary}{hint}")
        elif check.code == "interpreter" and check.hint:  # packages changed since the last call
            say(check.summary)
        elif check.code == CAPTURED:
            say(f"{check.summary}{hint}")


def follow(session: "Session", ref: AttemptRef) -> AttemptView:
    """Show what happens until the attempt has ended; return how it ended."""
    narrator = _Narrator(session)
    for item in session.runs.follow([ref], ranks=(0,)):
        if isinstance(item, AttemptView):
            narrator.standing(item)
        elif item is not None:
            narrator.lines(item)
    for finding in session.record_ended():
        say(finding.summary)
    (view,) = session.runs.describe([ref])
    narrator.over(view)
    return view


def follow_all(session: "Session", refs: Sequence[AttemptRef]) -> list[AttemptView]:
    """Show what rank 0 of each attempt prints, and how each has ended; return how they ended."""
    narrator = _Narrator(session, who="this sweep", where="the logs of its calls")
    for item in session.runs.follow(refs, ranks=(0,)):
        if isinstance(item, AttemptView):
            if not item.state.active:
                ended = session.runs.describe([item.ref])[0]
                say(ending(ended, now=datetime.now(UTC), colour=False))
        elif item is not None:
            narrator.lines(item, f"[{item.ref}] ")
    for finding in session.record_ended():
        say(finding.summary)
    return session.runs.describe(refs)


@contextmanager
def stopped_by_interrupt(session: "Session", refs: Sequence[AttemptRef]) -> Iterator[None]:
    """After Ctrl-C, or an interrupt of the kernel, cancel the attempts and wait until they have
    ended; a second interrupt returns at once.

    Args:
        refs: the active attempts; read when the interrupt comes.
    """
    try:
        yield
    except KeyboardInterrupt:
        if active := [ref for ref, one in session.runs.statuses(refs).items() if one.state.active]:
            _stop(session, active)
        raise


def _stop(session: "Session", refs: Sequence[AttemptRef]) -> None:
    """Cancel attempts and wait until nothing of them is left."""
    session.runs.cancel(*refs)
    names = f"{refs[0]} is" if len(refs) == 1 else f"{len(refs):,} attempts are"
    say(f"{names} being cancelled; interrupt again to leave at once")
    session.runs.wait(refs, tick=session.runs.forced_stops(refs, say))
    session.record_ended()
    for view in session.runs.describe(refs):
        say(ending(view, now=datetime.now(UTC), colour=False))


class _Narrator:
    """Writes the output of ranks to the same stream here, and everything else to stderr. In a
    notebook, which keeps all output in its page, the number of lines is limited; `who` has then
    printed them, and `where` are more."""

    def __init__(self, session: "Session", *, who: str = "rank 0", where: str = "its log") -> None:
        self._session = session
        self._who, self._where = who, where
        self._restart = 0
        self._tracking: str | None = None
        self._last_line = ""
        self._remaining = MOST_LINES if "ipykernel" in sys.modules else None
        self._cut = False

    def standing(self, status: AttemptView) -> None:
        for restart in status.restarts:
            if restart.number > self._restart:
                say(restart_line(status.ref, restart, now=datetime.now(UTC)))
        self._restart = status.restart
        if status.state in _ANNOUNCED or status.waiting_for:
            line = state_line(status)
            if line != self._last_line:
                self._last_line = line
                say(line)
        if status.tracking != self._tracking:
            self._tracking = status.tracking
            (view,) = self._session.runs.describe([status.ref])
            for text in tracking_notes(view):
                say(text)

    def lines(self, item: "LogLines", prefix: str = "") -> None:
        if self._cut:
            return
        lines = item.lines
        if self._remaining is not None:
            self._cut = len(lines) > self._remaining
            lines = lines[: self._remaining]
            self._remaining -= len(lines)
        if lines:
            stream = sys.stderr if item.stream == "stderr" else sys.stdout
            stream.write(clean_lines("\n".join(lines), prefix) + "\n")
            stream.flush()
        if self._cut:
            say(f"{self._who} has printed {MOST_LINES:,} lines: more are in {self._where} only")

    def over(self, view: AttemptView) -> None:
        if line := tracked_line(view):
            say(line)
        for text in tracking_notes(view):
            say(text)
        say(ending(view, now=datetime.now(UTC), colour=False))
        if line := usage_line(view):
            say(line)
