"""The ends of runs: as text for people, and as the error of a command."""

import shlex
import sys
from collections import deque
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from enum import StrEnum
from typing import TYPE_CHECKING

from sgpu_decl.cli.next_steps import complete
from sgpu_decl.cli.terminal_output import note, show, takes_colour
from sgpu_decl.errors import BackendError, Interrupted, NotFound, RunFailed, SgpuError
from sgpu_decl.model.attempt import AttemptRef, AttemptState
from sgpu_decl.views.failure_text import kind_words
from sgpu_decl.views.status_text import ending, failure, usage_line, working_files_note
from sgpu_decl.views.terminal import count
from sgpu_decl.views.tracking_text import tracking_notes

if TYPE_CHECKING:
    from sgpu_decl.api import Session
    from sgpu_decl.cli.interrupts import Signals
    from sgpu_decl.model.attempt_view import AttemptView

LAST_LINES = 10  # lines of a rank that failed without a traceback


class FollowEnd(StrEnum):
    """Why following stopped."""

    ENDED = "ended"
    DETACHED = "detached"
    CANCELLED = "cancelled"


def await_stops(
    session: "Session",
    stopping: "Sequence[AttemptRef]",
    signals: "Signals",
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
                hint="they are still stopping: see `sgpu status`",
            )

    session.runs.wait(stopping, tick=look)


def _say(text: str) -> None:
    show(text, err=True)


def show_endings(
    session: "Session",
    views: "Sequence[AttemptView]",
    *,
    shown: tuple[int, ...] | None = (),
    say: Callable[[str], None] = _say,
) -> None:
    """Show one line per attempt, the traceback of the first cause, and notes on its tracking. If
    the rank that failed left no traceback, show its last lines, unless its output was `shown`
    already (`None`: that of all ranks)."""
    for view in views:
        say(ending(view, now=datetime.now(UTC), colour=takes_colour(sys.stderr)))
        trace = failure(view) or _last_lines(session, view, shown)
        known = kind_words(view.first_cause, complete)
        notes = (working_files_note(view), *map(complete, tracking_notes(view)))
        for text in (usage_line(view), trace, known, *notes):
            if text:
                say(text)


def _last_lines(session: "Session", view: "AttemptView", shown: tuple[int, ...] | None) -> str:
    """The last lines of the rank that failed first; empty where there are none to be shown."""
    rank = view.first_cause.rank if view.first_cause is not None else None
    if rank is None or shown is None or rank in shown:
        return ""
    try:
        lines = _lines_of(session, view, rank)
    except NotFound:
        return ""  # the log is gone; how the run ended is known
    if not lines:
        return ""
    from sgpu_decl.views.rank_output_text import clean_lines

    return f"the last lines of rank {rank}:\n" + clean_lines("\n".join(lines), "    ")


def _lines_of(session: "Session", view: "AttemptView", rank: int) -> deque[str]:
    try:
        return _tail(session, view, rank, view.restart)
    except BackendError as error:
        if error.code != "no_restarts":
            raise
        return _tail(session, view, rank, None)  # the last ones are those of the last start


def _tail(session: "Session", view: "AttemptView", rank: int, restart: int | None) -> deque[str]:
    log = session.runs.logs(view.ref, ranks=(rank,), follow=False, restart=restart)
    return deque((line for item in log if item for line in item.lines), maxlen=LAST_LINES)


def outcome_error(
    session: "Session", views: "Sequence[AttemptView]", end: FollowEnd
) -> SgpuError | None:
    """The error of a command that followed these attempts and stopped for this reason."""
    if end is not FollowEnd.ENDED:
        cancelled = end is FollowEnd.CANCELLED
        return Interrupted(
            "cancelled" if cancelled else "detached before the runs ended",
            hint=None if cancelled else "the runs continue: see `sgpu status`",
        )
    unseen = [view for view in views if view.unavailable and (view.state.active or view.overdue)]
    bad = [
        view for view in views if view.state is not AttemptState.SUCCEEDED and view not in unseen
    ]
    if not bad:
        return _unfollowed(session, unseen[0]) if unseen else None
    started = [str(view.ref) for view in bad if not view.skipped]
    named = started or [str(view.ref) for view in bad]
    more = f" and {len(named) - 5} more" if len(named) > 5 else ""
    text = f"{', '.join(f'`{ref}`' for ref in named[:5])}{more} did not succeed"
    if not started:
        return RunFailed(
            f"{text}: skipped, since a run that comes before has not succeeded",
            hint="`sgpu apply` launches it again with that run",
        )
    skipped = len(bad) - len(started)
    return RunFailed(
        f"{text}{_skipped_after(skipped)}",
        hint=f"the output of all ranks: `sgpu logs {shlex.quote(started[0])} --rank all`",
    )


def _unfollowed(session: "Session", view: "AttemptView") -> SgpuError:
    """The error of a command that could not follow an attempt, which may go on."""
    try:
        session.runs.require_here(view.ref)
    except BackendError as error:
        return error
    return BackendError(
        f"`{view.ref}` could not be followed: {view.unavailable}",
        hint=f"it answers again: `sgpu wait {shlex.quote(str(view.ref))}`",
        code="launched_elsewhere",
    )


def _skipped_after(skipped: int) -> str:
    were = "was" if skipped == 1 else "were"
    return f", and {count(skipped, 'run')} after it {were} skipped" if skipped else ""
