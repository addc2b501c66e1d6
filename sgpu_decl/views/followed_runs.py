"""What followed runs are doing, in a few lines for the bottom of a terminal. Imports rich, so only
what draws on a terminal may import this."""

from collections.abc import Sequence
from datetime import datetime

from rich.text import Text

from sgpu_decl.diagnostics.amounts import duration
from sgpu_decl.model.attempt import AttemptState
from sgpu_decl.model.attempt_view import AttemptView
from sgpu_decl.views.run_progress_text import progress_words
from sgpu_decl.views.status_text import tally
from sgpu_decl.views.terminal import columns, count, escape, shorten

_STYLES = {AttemptState.RUNNING: "cyan", AttemptState.STOPPING: "yellow"}
_MOST = 8
_STATE_COLUMNS = len(AttemptState.STARTING)


def progress(statuses: Sequence[AttemptView], *, now: datetime, width: int, height: int) -> Text:
    """One line for each run that is at work, and a tally where several runs are followed.

    Args:
        width: of the terminal in columns: names are cut to it.
        height: of the terminal in lines: a third of it is taken at most.
    """
    ordered = sorted(statuses, key=lambda status: status.ref)
    # Of many, those that wait are only counted.
    waiting = AttemptState.QUEUED if len(statuses) > 1 else None
    rows = [item for item in ordered if item.state.active and item.state is not waiting]
    room = max(1, min(_MOST, height // 3))
    shown = rows if len(rows) <= room else rows[: room - 1]
    names = [escape(str(status.ref)) for status in shown]
    times = [_elapsed(status, now) + _restart(status, now) for status in shown]
    beside = _STATE_COLUMNS + max(map(len, times), default=0) + 4
    longest = min(max(map(columns, names), default=0), max(4, width - beside))
    text = Text(no_wrap=True, overflow="crop", end="")
    for name, elapsed, status in zip(names, times, shown, strict=True):
        name = shorten(name, longest)
        text.append(name + " " * (longest - columns(name) + 2))
        text.append(f"{status.state:<{_STATE_COLUMNS}}", style=_STYLES.get(status.state))
        text.append(f"  {elapsed}")
        doing = ""
        if status.waiting_for:
            doing = f"waiting for {escape(status.waiting_for)}"
        elif status.progress is not None:
            doing = progress_words(status.progress)
        if doing:
            text.append(shorten(f"  {doing}", max(4, width - longest - beside)))
        text.append("\n")
    if len(rows) > len(shown):
        text.append(f"and {count(len(rows) - len(shown), 'more run')}\n", style="dim")
    if len(statuses) > 1:
        text.append(shorten(tally([item.state_word for item in ordered]), width), style="dim")
    text.rstrip()
    return text


def _elapsed(status: AttemptView, now: datetime) -> str:
    if status.started_at is None:
        return ""
    return duration(int((now - status.started_at).total_seconds()))


def _restart(status: AttemptView, now: datetime) -> str:
    if not status.restart:
        return ""
    seconds = (status.restarts[-1].starts_at - now).total_seconds() if status.restarts else 0
    return f", restart {status.restart}" + (
        f" in {duration(int(seconds) + 1)}" if seconds > 0 else ""
    )
