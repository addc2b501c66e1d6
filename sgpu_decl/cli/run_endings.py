"""How runs ended: shown to people, and as the error of a command."""

import shlex
import sys
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING

from sgpu_decl.cli.terminal_output import note, takes_colour
from sgpu_decl.errors import Interrupted, RunFailed, SgpuError
from sgpu_decl.views.status_text import ending, failure, working_files_note
from sgpu_decl.views.tracking_text import tracking_notes

if TYPE_CHECKING:
    from sgpu_decl.api import Session
    from sgpu_decl.cli.interrupts import Signals
    from sgpu_decl.model.attempt import AttemptRef
    from sgpu_decl.model.jsonable import Json

__all__ = ["FollowEnd", "await_stops", "outcome_error", "show_endings"]

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
                hint=f"they go on stopping: see {session.shell_command('status')}",
            )

    session.runs.wait(stopping, tick=look)


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
    log = session.runs.logs(ref, ranks=(rank,), follow=False, restart=number)
    lines = deque((line for item in log if item for line in item.lines), maxlen=LAST_LINES)
    if not lines:
        return ""
    from sgpu_decl.views.logs_text import clean_lines

    return f"the last lines of rank {rank}:\n" + clean_lines("\n".join(lines), "    ")


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
