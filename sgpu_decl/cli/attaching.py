"""Following runs until they have ended, or until the viewer leaves."""

import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, TextIO

from sgpu_decl.cli.interrupting import Decision, Interrupts, Signals
from sgpu_decl.cli.screens import Screen, open_screen
from sgpu_decl.cli.showing import interactive, note, takes_colour
from sgpu_decl.errors import BackendError, Interrupted, RunFailed, SgpuError
from sgpu_decl.model.attempt import AttemptRef, AttemptStatus
from sgpu_decl.views.logs_text import clean, prefix
from sgpu_decl.views.status_text import ending, failure

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sgpu_decl.api import Session
    from sgpu_decl.backends.base import LogLine
    from sgpu_decl.model.jsonable import Json

__all__ = ["Left", "attach", "await_stops", "outcome_error", "show_endings"]


class Left(StrEnum):
    """Why following stopped."""

    ENDED = "ended"
    DETACHED = "detached"
    CANCELLED = "cancelled"


@dataclass(slots=True)
class _Follower:
    session: "Session"
    refs: Sequence[AttemptRef]
    ranks: tuple[int, ...] | None
    screen: Screen
    active: set[AttemptRef]

    @property
    def prefixed(self) -> bool:
        return len(self.refs) > 1 or self.ranks is None or len(self.ranks) > 1

    def show(self, item: "LogLine | AttemptStatus | None") -> None:
        if item is None:
            self.screen.tick()
        elif isinstance(item, AttemptStatus):
            self.screen.standing(item)
            if not item.state.active:
                self.active.discard(item.ref)
                if len(self.refs) > 1:  # how a single run ended is told when it is left
                    show_endings(self.session.runs.describe([item.ref]), say=self.screen.note)
        else:
            before = prefix(item.ref.address.label, item.rank) if self.prefixed else ""
            self.screen.line(before + clean(item.text))

    def cancel(self) -> None:
        for ref in sorted(self.active):
            self.session.runs.cancel(ref)


def attach(
    session: "Session",
    refs: Sequence[AttemptRef],
    *,
    ranks: tuple[int, ...] | None,
    out: TextIO,
    signals: Signals,
) -> Left:
    """Show lines of ranks on `out` and everything else on stderr until all runs have ended. Of
    several, each end is told as it comes.

    `signals` are those that came so far; what each of them means is `Interrupts`' matter.
    """
    interrupts = Interrupts(interactive=interactive())
    with open_screen(out) as screen:
        follower = _Follower(session, refs, ranks, screen, set(refs))
        try:
            for item in session.runs.follow(refs, ranks=ranks):
                follower.show(item)
                decision = interrupts.decide(
                    presses=signals.presses, terminated=signals.terminated, now=time.monotonic()
                )
                match decision:
                    case Decision.ANNOUNCE:
                        screen.note("detaching in 5 s, press again to cancel the run")
                    case Decision.CANCEL:
                        screen.note("cancelling, press again to leave at once")
                        follower.cancel()
                    case Decision.DETACH | Decision.LEAVE:
                        screen.note(
                            "detached: the run goes on; see `sgpu status` and `sgpu logs -f`"
                        )
                        return Left.DETACHED
                    case Decision.GO_ON:
                        pass
        except BackendError:
            screen.note("lost sight of the run, which goes on: see `sgpu logs -f` once you can")
            raise
    return Left.CANCELLED if interrupts.cancelling else Left.ENDED


def await_stops(session: "Session", stopping: Sequence[AttemptRef], signals: Signals) -> None:
    """Wait for runs that were asked to stop: they end within their grace.

    Raises:
        Interrupted: a signal came; they go on stopping.
    """

    def look() -> None:
        if signals.any:
            raise Interrupted(
                "left while runs are being stopped", hint="they go on stopping: see `sgpu status`"
            )

    session.runs.wait(stopping, tick=look)


def show_endings(runs: "Sequence[Mapping[str, Json]]", say: Callable[[str], None] = note) -> None:
    """One line per run, and the traceback of the first cause where one failed."""
    for run in runs:
        say(ending(run, colour=takes_colour(sys.stderr)))
        if trace := failure(run):
            say(trace)


def outcome_error(runs: "Sequence[Mapping[str, Json]]", left: Left) -> SgpuError | None:
    """The error that the runs and the way of leaving amount to."""
    if left is not Left.ENDED:
        cancelled = left is Left.CANCELLED
        return Interrupted(
            "cancelled" if cancelled else "detached before the runs ended",
            hint=None if cancelled else "the runs go on: see `sgpu status`",
        )
    bad = [f"`{run['name']}#{run['attempt']}`" for run in runs if run["state"] != "succeeded"]
    if not bad:
        return None
    listed = ", ".join(bad[:5]) + (f" and {len(bad) - 5} more" if len(bad) > 5 else "")
    return RunFailed(
        f"{listed} did not succeed",
        hint="see `sgpu status` and `sgpu logs NAME --rank all`",
    )
