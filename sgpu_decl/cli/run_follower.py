"""Following runs until they have ended, or until the viewer leaves."""

import os
import shlex
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol, TextIO

from sgpu_decl.cli.event_file import NO_EVENTS, EventFile
from sgpu_decl.cli.interrupts import InterruptDecision, Interrupts, Signals
from sgpu_decl.cli.next_steps import complete
from sgpu_decl.cli.run_endings import FollowEnd, show_endings
from sgpu_decl.cli.terminal_output import interactive, note, now, show, write_line
from sgpu_decl.errors import BackendError
from sgpu_decl.model.attempt import BACKOFF, AttemptRef
from sgpu_decl.model.attempt_view import AttemptView
from sgpu_decl.views.progress_text import restart_line, silence_line, state_line
from sgpu_decl.views.rank_output_text import clean_lines, prefix
from sgpu_decl.views.tracking_text import tracking_notes

if TYPE_CHECKING:
    from sgpu_decl.api import Session
    from sgpu_decl.model.rank_output import LogLines


class Screen(Protocol):
    def lines(self, text: str) -> None:
        """Lines that a rank wrote, without the newline of the last."""

    def note(self, text: str) -> None:
        """A line of ours."""

    def show_state(self, status: AttemptView) -> None:
        """An attempt has another state, or waits for something else."""

    def tick(self) -> None:
        """Nothing happened for a moment."""


class _Lines:
    """Ranks on `out`, everything else on stderr, line by line."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._shown: dict[AttemptRef, str] = {}

    def lines(self, text: str) -> None:
        write_line(self._out, text)

    def note(self, text: str) -> None:
        show(text, err=True)

    def show_state(self, status: AttemptView) -> None:
        if status.state.active and status.waiting_for != BACKOFF:  # a note says that already
            line = state_line(status)
            if self._shown.get(status.ref) != line:  # what else is new of it has its own words
                self._shown[status.ref] = line
                note(line)

    def tick(self) -> None:
        pass


@contextmanager
def _open_screen(out: TextIO) -> Iterator[Screen]:
    """Open the screen while runs are followed. Its live region is erased at the end.

    A live region needs a terminal for both streams: lines of `| tee log` would come back to the
    terminal and break it.
    """
    both = out.isatty() and sys.stderr.isatty()
    if not both or os.environ.get("TERM") in ("dumb", "unknown"):
        yield _Lines(out)
        return
    from sgpu_decl.cli.live_region import LiveScreen

    with LiveScreen() as screen:
        yield screen


@dataclass(slots=True)
class _Follower:
    session: "Session"
    refs: Sequence[AttemptRef]
    ranks: tuple[int, ...] | None
    screen: Screen
    active: set[AttemptRef]
    events: EventFile
    restarts: dict[AttemptRef, int] = field(default_factory=dict)
    warned: set[AttemptRef] = field(default_factory=set)  # about their tracking
    silent: set[AttemptRef] = field(default_factory=set)  # those that do not answer now
    force: Callable[[], None] = lambda: None  # ends those that do not answer, once asked to stop

    @property
    def prefixed(self) -> bool:
        return len(self.refs) > 1 or self.ranks is None or len(self.ranks) > 1

    def show(self, item: "LogLines | AttemptView | None") -> None:
        if item is None:
            self.screen.tick()
        elif isinstance(item, AttemptView):
            self.events.run(item)
            for restart in item.restarts:
                if restart.number > self.restarts.get(item.ref, 0):
                    self.screen.note(restart_line(item.ref, restart, now=now()))
            self.restarts[item.ref] = item.restart
            if (item.unavailable is None) == (item.ref in self.silent):
                self.silent ^= {item.ref}
                self.screen.note(silence_line(item, now=now()))
            self.screen.show_state(item)
            if item.tracking is not None and item.ref not in self.warned:
                self.warned.add(item.ref)
                (view,) = self.session.runs.describe([item.ref])
                for line in map(complete, tracking_notes(view)):
                    self.screen.note(line)
            if not item.state.active:
                self.active.discard(item.ref)
                if len(self.refs) > 1:  # how a single run ended is told when it is left
                    views = self.session.runs.describe([item.ref])
                    show_endings(self.session, views, shown=self.ranks, say=self.screen.note)
        else:
            before = prefix(item.ref.address.label, item.rank) if self.prefixed else ""
            self.screen.lines(clean_lines(item.text, before))

    def cancel(self) -> None:
        stopping = sorted(self.active)
        self.session.runs.cancel(*stopping)
        self.force = self.session.runs.forced_stops(stopping, self.screen.note)


def attach(
    session: "Session",
    refs: Sequence[AttemptRef],
    *,
    ranks: tuple[int, ...] | None,
    out: TextIO,
    signals: Signals,
    events: EventFile = NO_EVENTS,
) -> FollowEnd:
    """Show lines of ranks on `out` and everything else on stderr until all runs have ended. Of
    several, each end is told as it comes.

    `signals` are those that came so far; what each of them means is `Interrupts`' matter.
    """
    interrupts = Interrupts(interactive=interactive())
    with _open_screen(out) as screen:
        follower = _Follower(session, refs, ranks, screen, set(refs), events)
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
                        screen.note(f"detached: the run goes on; see {_commands(refs)}")
                        return FollowEnd.DETACHED
                    case InterruptDecision.GO_ON:
                        pass
        except BackendError:
            screen.note(
                f"the run may go on, but its backend does not answer: see {_commands(refs)}"
            )
            raise
    return FollowEnd.CANCELLED if interrupts.cancelling else FollowEnd.ENDED


def _commands(refs: Sequence[AttemptRef]) -> str:
    name = shlex.quote(refs[0].address.label)
    return complete(f"`sgpu status` and `sgpu logs -f {name}`")
