"""Following runs until they have ended, or until the viewer leaves."""

import shlex
import sys
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, TextIO

from sgpu_decl.cli.interrupts import InterruptDecision, Interrupts, Signals
from sgpu_decl.cli.screen import Screen, open_screen
from sgpu_decl.cli.terminal_output import interactive, note, now, takes_colour
from sgpu_decl.errors import BackendError, Interrupted, RunFailed, SgpuError
from sgpu_decl.model.attempt import AttemptRef
from sgpu_decl.model.attempt_view import AttemptView
from sgpu_decl.views.apply_text import restart_line
from sgpu_decl.views.logs_text import clean_lines, prefix
from sgpu_decl.views.status_json import status_object, status_objects
from sgpu_decl.views.status_text import ending, failure, working_files_note
from sgpu_decl.views.tracking_text import tracking_notes

if TYPE_CHECKING:
    from sgpu_decl.api import Session
    from sgpu_decl.model.jsonable import Json
    from sgpu_decl.model.rank_output import LogLines

__all__ = ["FollowEnd", "attach", "await_stops", "outcome_error", "show_endings"]

LAST_LINES = 10  # lines of a rank that failed without a traceback


class FollowEnd(StrEnum):
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
    restarts: dict[AttemptRef, int] = field(default_factory=dict)
    warned: set[AttemptRef] = field(default_factory=set)  # about their tracking
    force: Callable[[], None] = lambda: None  # ends those that do not answer, once asked to stop

    @property
    def prefixed(self) -> bool:
        return len(self.refs) > 1 or self.ranks is None or len(self.ranks) > 1

    def show(self, item: "LogLines | AttemptView | None") -> None:
        if item is None:
            self.screen.tick()
        elif isinstance(item, AttemptView):
            for restart in item.restarts:
                if restart.number > self.restarts.get(item.ref, 0):
                    self.screen.note(restart_line(item.ref, restart, now=now()))
            self.restarts[item.ref] = item.restart
            self.screen.standing(item)
            if item.tracking is not None and item.ref not in self.warned:
                self.warned.add(item.ref)
                (view,) = self.session.runs.describe([item.ref])
                for line in tracking_notes(status_object(view)):
                    self.screen.note(line)
            if not item.state.active:
                self.active.discard(item.ref)
                if len(self.refs) > 1:  # how a single run ended is told when it is left
                    runs = status_objects(self.session.runs.describe([item.ref]))
                    show_endings(self.session, runs, shown=self.ranks, say=self.screen.note)
        else:
            before = prefix(item.ref.address.label, item.rank) if self.prefixed else ""
            self.screen.lines(clean_lines(item.text, before))

    def cancel(self) -> None:
        stopping = sorted(self.active)
        for ref in stopping:
            self.session.runs.cancel(ref)
        self.force = self.session.runs.forced_stops(stopping, self.screen.note)


def attach(
    session: "Session",
    refs: Sequence[AttemptRef],
    *,
    ranks: tuple[int, ...] | None,
    out: TextIO,
    signals: Signals,
) -> FollowEnd:
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
                follower.force()
                decision = interrupts.decide(
                    presses=signals.presses, terminated=signals.terminated, now=time.monotonic()
                )
                match decision:
                    case InterruptDecision.ANNOUNCE:
                        screen.note("detaching in 5 s, press again to cancel the run")
                    case InterruptDecision.CANCEL:
                        screen.note("cancelling, press again to leave at once")
                        follower.cancel()
                    case InterruptDecision.DETACH | InterruptDecision.LEAVE:
                        screen.note(f"detached: the run goes on; see {_commands(session, refs)}")
                        return FollowEnd.DETACHED
                    case InterruptDecision.GO_ON:
                        pass
        except BackendError:
            screen.note(
                f"the run goes on, but its backend does not answer: see {_commands(session, refs)}"
            )
            raise
    return FollowEnd.CANCELLED if interrupts.cancelling else FollowEnd.ENDED


def await_stops(
    session: "Session",
    stopping: Sequence[AttemptRef],
    signals: Signals,
    patience: float | None = None,
) -> None:
    """Wait for runs that were asked to stop: they end within their grace. One whose supervisor is
    silent for `patience` seconds is ended by force.

    Raises:
        Interrupted: a signal came; they go on stopping.
    """

    force = session.runs.forced_stops(stopping, note, patience)

    def look() -> None:
        force()
        if signals.any:
            raise Interrupted(
                "left while runs are being stopped",
                hint=f"they go on stopping: see {session.shell_command('status')}",
            )

    session.runs.wait(stopping, tick=look)


def _commands(session: "Session", refs: Sequence[AttemptRef]) -> str:
    name = shlex.quote(refs[0].address.label)
    return f"{session.shell_command('status')} and {session.shell_command(f'logs -f {name}')}"


def show_endings(
    session: "Session",
    runs: "Sequence[Mapping[str, Json]]",
    *,
    shown: tuple[int, ...] | None = (),
    say: Callable[[str], None] = note,
) -> None:
    """One line per run, the traceback of the first cause where one failed, and what is not as
    expected of its tracking. Where a rank left no traceback, the last that it wrote, unless its
    output is among what is `shown` (all of it for `None`)."""
    for run in runs:
        say(ending(run, colour=takes_colour(sys.stderr)))
        if words := failure(run) or _last_words(session, run, shown):
            say(words)
        for line in (working_files_note(run), *tracking_notes(run)):
            if line:
                say(line)


def _last_words(
    session: "Session", run: "Mapping[str, Json]", shown: tuple[int, ...] | None
) -> str:
    """The last lines of the rank that failed first; empty where there are none to be shown."""
    cause, restart = run.get("first_cause"), run.get("restart")
    rank = cause.get("rank") if isinstance(cause, Mapping) else None
    if not isinstance(rank, int) or shown is None or rank in shown:
        return ""
    (ref,) = session.runs.find(f"{run['name']}#{run['attempt']}")
    number = restart if isinstance(restart, int) else None
    found = session.runs.logs(ref, ranks=(rank,), follow=False, restart=number)
    lines = deque((line for item in found if item for line in item.lines), maxlen=LAST_LINES)
    if not lines:
        return ""
    return f"the last that rank {rank} wrote:\n" + clean_lines("\n".join(lines), "    ")


def outcome_error(
    session: "Session", runs: "Sequence[Mapping[str, Json]]", end: FollowEnd
) -> SgpuError | None:
    """The error that the runs and the way of leaving amount to."""
    if end is not FollowEnd.ENDED:
        cancelled = end is FollowEnd.CANCELLED
        return Interrupted(
            "cancelled" if cancelled else "detached before the runs ended",
            hint=None if cancelled else f"the runs go on: see {session.shell_command('status')}",
        )
    bad = [f"{run['name']}#{run['attempt']}" for run in runs if run["state"] != "succeeded"]
    if not bad:
        return None
    listed = ", ".join(f"`{ref}`" for ref in bad[:5]) + (
        f" and {len(bad) - 5} more" if len(bad) > 5 else ""
    )
    return RunFailed(
        f"{listed} did not succeed",
        hint="the output of all ranks: "
        + session.shell_command(f"logs {shlex.quote(bad[0])} --rank all"),
    )
