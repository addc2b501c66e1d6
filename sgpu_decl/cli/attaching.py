"""Following runs until they have ended, or until the viewer leaves."""

import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, TextIO

from sgpu_decl.cli.interrupting import Decision, Interrupts, Signals
from sgpu_decl.cli.showing import interactive, note, takes_colour, write_line
from sgpu_decl.errors import Interrupted, RunFailed, SgpuError
from sgpu_decl.model.attempt import AttemptRef, AttemptStatus
from sgpu_decl.views.apply_text import state_line
from sgpu_decl.views.logs_text import clean, prefix
from sgpu_decl.views.status_text import ending, failure

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sgpu_decl.api import Session
    from sgpu_decl.backends.base import LogLine
    from sgpu_decl.model.jsonable import Json

__all__ = ["Left", "attach", "outcome_error", "show_endings"]


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
    out: TextIO
    active: set[AttemptRef]

    @property
    def prefixed(self) -> bool:
        return len(self.refs) > 1 or self.ranks is None or len(self.ranks) > 1

    def show(self, item: "LogLine | AttemptStatus | None") -> None:
        if item is None:
            return
        if isinstance(item, AttemptStatus):
            if not item.state.active:
                self.active.discard(item.ref)
            # how a single run ended is told in full right after
            if item.state.active or len(self.refs) > 1:
                note(state_line(item))
            return
        before = prefix(item.ref.address.label, item.rank) if self.prefixed else ""
        write_line(self.out, before + clean(item.text))

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
    """Show lines of ranks on `out` and changes of state on stderr until all runs have ended.

    `signals` are those that came so far; what each of them means is `Interrupts`' matter.
    """
    follower = _Follower(session, refs, ranks, out, set(refs))
    interrupts = Interrupts(interactive=interactive())
    for item in session.runs.follow(refs, ranks=ranks):
        follower.show(item)
        decision = interrupts.decide(
            presses=signals.presses, terminated=signals.terminated, now=time.monotonic()
        )
        match decision:
            case Decision.ANNOUNCE:
                note("detaching in 5 s, press again to cancel the run")
            case Decision.CANCEL:
                note("cancelling, press again to leave at once")
                follower.cancel()
            case Decision.DETACH | Decision.LEAVE:
                note("detached: the run goes on; see `sgpu status` and `sgpu logs -f`")
                return Left.DETACHED
            case Decision.GO_ON:
                pass
    return Left.CANCELLED if interrupts.cancelling else Left.ENDED


def show_endings(runs: "Sequence[Mapping[str, Json]]") -> None:
    """One line per run on stderr, and the traceback of the first cause where one failed."""
    for run in runs:
        note(ending(run, colour=takes_colour(sys.stderr)))
        if trace := failure(run):
            note(trace)


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
