"""Watching a call until it has ended: what rank 0 prints, and a line for each phase."""

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from sgpu_decl.diagnostics.diagnostic import Severity
from sgpu_decl.model.attempt import AttemptRef, AttemptState, AttemptStatus
from sgpu_decl.model.jsonable import Json
from sgpu_decl.model.plan import Plan
from sgpu_decl.views.apply_text import state_line, waiting_line
from sgpu_decl.views.logs_text import clean
from sgpu_decl.views.phase_text import phase_line
from sgpu_decl.views.plan_words import packages_amount
from sgpu_decl.views.status_text import ending, tracked_line

if TYPE_CHECKING:
    from sgpu_decl.api import Session
    from sgpu_decl.backends.base import LogLine

__all__ = ["Phases", "follow", "say", "stopped_by_interrupt", "tell_plan"]

MOST_LINES = 2_000  # that a notebook keeps of one call; the log has them all
_SAID = (AttemptState.QUEUED, AttemptState.RUNNING, AttemptState.STOPPING)


def say(text: str) -> None:
    """A line of ours, beside what the ranks print."""
    print(f"sgpu: {text}", file=sys.stderr, flush=True)  # noqa: T201  it is what a caller sees


class Phases:
    """A `Progress` that says each phase once, when it begins."""

    def __init__(self) -> None:
        self._phase = ""

    def advance(self, phase: str, done: int, total: int) -> None:
        if phase != self._phase:
            self._phase = phase
            say(phase_line(phase, done, total, seconds=0))


def tell_plan(plan: Plan) -> None:
    """What is about to be launched, and what is worth knowing before."""
    for change in plan.changes:
        if change.environment is not None and change.environment.packages and change.prior:
            before = f"{change.address.label}#{change.prior.attempt}"
            say(f"{packages_amount(change.environment.packages)} since {before}")
    for check in plan.checks:
        hint = f" ({check.hint})" if check.hint else ""
        if check.severity is Severity.WARNING:
            say(f"warning[{check.id}]: {check.summary}{hint}")
        elif check.id == "interpreter" and check.hint:  # packages changed since the last call
            say(check.summary)


def follow(session: "Session", ref: AttemptRef) -> Mapping[str, Json]:
    """Show what happens until the attempt has ended; return its status object."""
    telling = _Telling(session)
    for item in session.runs.follow([ref], ranks=(0,)):
        if isinstance(item, AttemptStatus):
            telling.standing(item)
        elif item is not None:
            telling.line(item)
    session.record_ended()
    run = session.runs.describe([ref])[0]
    telling.over(run)
    return run


@contextmanager
def stopped_by_interrupt(session: "Session", refs: Sequence[AttemptRef]) -> Iterator[None]:
    """Ctrl-C, or the kernel's interrupt, cancels what was launched and waits until it has stopped;
    a second one leaves at once.

    Args:
        refs: those that are active; looked at when the interrupt comes.
    """
    try:
        yield
    except KeyboardInterrupt:
        for ref in refs:
            _stop(session, ref)
        raise


def _stop(session: "Session", ref: AttemptRef) -> None:
    """Cancel an attempt and wait until nothing of it is left."""
    session.runs.cancel(ref)
    say(f"{ref} is being cancelled; interrupt again to leave at once")
    session.runs.wait([ref])
    session.record_ended()
    say(ending(session.runs.describe([ref])[0], colour=False))


class _Telling:
    """What ranks print goes where it would here, everything else to stderr. A notebook is not
    flooded: it keeps all output in the page."""

    def __init__(self, session: "Session") -> None:
        self._session = session
        self._left = MOST_LINES if "ipykernel" in sys.modules else None

    def standing(self, status: AttemptStatus) -> None:
        if status.state is AttemptState.QUEUED:
            run = self._session.runs.describe([status.ref])[0]
            say(waiting_line(status.ref, run))
        elif status.state in _SAID:
            say(state_line(status))

    def line(self, line: "LogLine") -> None:
        if self._left is not None:
            self._left -= 1
            if self._left == 0:
                say(f"rank 0 has printed {MOST_LINES:,} lines: more of them are in its log only")
            if self._left <= 0:
                return
        stream = sys.stderr if line.stream == "stderr" else sys.stdout
        stream.write(clean(line.text) + "\n")
        stream.flush()

    def over(self, run: Mapping[str, Json]) -> None:
        if tracked := tracked_line(run):
            say(tracked)
        say(ending(run, colour=False))
