"""What `sgpu top` shows: one run with its ranks, or the runs of a project. Imports rich, so only
`sgpu top` may import this.

A frame is made of values alone. With a `height` it has at most as many lines, of which the last one
names the keys; without, it has a row for each rank or run, and no log.
"""

from collections.abc import Iterator, Sequence
from datetime import datetime

from rich.text import Text

from sgpu_decl.diagnostics.amounts import duration
from sgpu_decl.model.attempt_view import AttemptView, RankView
from sgpu_decl.model.rank_activity import WatchedRun
from sgpu_decl.views.rank_output_text import plain
from sgpu_decl.views.rank_rows import MARK, STYLES, bar, cells_per_line, rank_cells, rank_table
from sgpu_decl.views.run_progress_text import progress_words
from sgpu_decl.views.status_text import (
    cause_words,
    idle_line,
    supervision_words,
    tally,
    wait_words,
    waiting_words,
)
from sgpu_decl.views.terminal import columns, count, escape, hours, shorten

LEAST_WIDTH, LEAST_HEIGHT = 40, 12

_LOG = 6  # lines that the log has at least, with its title
_REMARKS = 3  # ranks that differ, which are named
_STALE = 10.0  # seconds after which a measurement is old
_BAR = 20
_RANK_KEYS = "arrows or h j k l: rank"
_NAME = 40  # columns of the name of a run, at most


def too_small(width: int, height: int) -> str:
    """Why a terminal is too small; empty if it is not."""
    if width >= LEAST_WIDTH and height >= LEAST_HEIGHT:
        return ""
    return (
        f"the terminal has {width} columns and {height} lines, and {LEAST_WIDTH} and {LEAST_HEIGHT}"
        " are needed"
    )


def run_frame(
    run: WatchedRun,
    log: Sequence[str] = (),
    *,
    now: datetime,
    width: int,
    height: int | None = None,
    chosen: int | None = None,
    back: bool = False,
) -> list[Text]:
    """One run.

    Args:
        log: the last lines of the chosen rank.
        chosen: a rank.
        back: whether a key leads back to the other runs.
    """
    ranks = run.view.ranks
    lines = [*_head(run, now, width), *_remarks(run, width)]
    if height is None:
        return _cut([*lines, *rank_table(run, ranks, now=now, width=width, chosen=None)], width)
    room = height - len(lines) - 1
    if not ranks:
        pass
    elif rows_fit(len(ranks), room):
        lines += rank_table(run, ranks, now=now, width=width, chosen=chosen)
    else:
        lines += _cells(run, room=room - _LOG - 2, width=width, chosen=chosen)
        some = [rank for rank in ranks if rank.rank == chosen]
        lines += rank_table(run, some, now=now, width=width, chosen=chosen)
    if chosen is not None and ranks:
        lines += _log(f"log of rank {chosen}", log, height - len(lines) - 1, width)
    keys = [_RANK_KEYS, "esc: all runs"] if back else [_RANK_KEYS]
    return _with_keys(lines, keys, width, height)


def ranks_per_line(run: WatchedRun, *, now: datetime, width: int, height: int) -> int:
    """How many ranks stand on one line in `run_frame`, for the arrows."""
    head = len([*_head(run, now, width), *_remarks(run, width)])
    fit = rows_fit(len(run.view.ranks), height - head - 1)
    return 1 if fit else cells_per_line(run, width)


def rows_fit(ranks: int, room: int) -> bool:
    """Whether a row for each rank leaves room for a log."""
    return 1 + ranks + _LOG <= room


def runs_frame(
    runs: Sequence[WatchedRun],
    log: Sequence[str] = (),
    *,
    now: datetime,
    width: int,
    height: int | None = None,
    chosen: int = 0,
) -> list[Text]:
    """Several runs, a row for each. `chosen` is the place of one of them, whose first rank has
    written the `log`."""
    if not runs:
        lines = [Text("no run is active")]
        return lines if height is None else _with_keys(lines, [], width, height)
    lines = [Text(tally([run.view.state_word for run in runs]), style="bold")]
    shown, first = runs, 0
    if height is not None:
        most = max(1, min(len(runs), height - 3 - _LOG))
        first = max(0, min(chosen - most // 2, len(runs) - most))
        shown = runs[first : first + most]
    lines += _run_rows(shown, now, width, None if height is None else chosen - first)
    if height is None:
        return _cut(lines, width)
    if len(shown) < len(runs):
        lines[0].append(f", of which {first + 1:,} to {first + len(shown):,} are shown")
    view = runs[chosen].view
    lines += _log(f"log of {escape(str(view.ref))}", log, height - len(lines) - 1, width)
    return _with_keys(lines, ["arrows or j k: run", "enter: its ranks"], width, height)


def _run_rows(
    runs: Sequence[WatchedRun], now: datetime, width: int, chosen: int | None
) -> Iterator[Text]:
    rows = [("RUN", "STATE", "TOOK", "USE", "")]
    rows += [
        (
            shorten(escape(str(run.view.ref)), _NAME), run.view.state_word, _took(run.view, now),
            _use(run), "; ".join(text for text, _ in _news(run, now)),
        )
        for run in runs
    ]  # fmt: skip
    widths = [max(columns(row[at]) for row in rows) for at in range(4)]
    for place, row in enumerate(rows, -1):
        run = runs[place] if place >= 0 else None
        line = Text(no_wrap=True, end="", style="dim" if run is None else "")
        line.append(">" if run is not None and place == chosen else " ", style="bold")
        differ = run is not None and any(one.differs for one in run.ranks)
        line.append("!" if differ else " ", style=MARK)
        for at, wide in enumerate(widths):
            style = STYLES.get(row[at], "") if at == 1 else ""
            line.append(row[at] + " " * (wide - columns(row[at]) + 2), style=style)
        line.append(shorten(row[4], max(1, width - columns(line.plain))))
        line.rstrip()
        yield line


def _use(run: WatchedRun) -> str:
    """The mean use of the GPUs, or else of all processors that its ranks use together."""
    gpus = [one.gpu for one in run.ranks if one.gpu is not None]
    if gpus:
        return f"GPU {round(sum(gpus) / len(gpus))}%"
    cpus = [one.cpu for one in run.ranks if one.cpu is not None]
    return f"CPU {sum(cpus)}%" if cpus else "-"


def _took(view: AttemptView, now: datetime) -> str:
    seconds = view.seconds(now)
    return "-" if seconds is None else duration(int(seconds))


def _head(run: WatchedRun, now: datetime, width: int) -> list[Text]:
    view = run.view
    first = Text(no_wrap=True, end="")
    where = f"{run.gpus} {run.gpu_type} on {view.backend}" if run.gpus else f"on {view.backend}"
    restarts = [count(view.restart, "restart")] if view.restart else []
    took = [] if view.started_at is None else [_took(view, now)]
    rest = "  ".join([*took, where, *restarts])
    name = shorten(escape(str(view.ref)), max(8, width - len(view.state_word) - len(rest) - 4))
    first.append(name, style="bold")
    first.append(f"  {view.state_word}", style=STYLES.get(view.state_word, ""))
    first.append(f"  {rest}")
    lines = [first]
    for text, style in _news(run, now):
        lines.append(Text(shorten(text, width), style=style))
    if view.progress is not None and view.progress.percent is not None:
        words = lines[1].plain
        share = view.progress.percent / 100
        lines[1] = Text(shorten(f"{bar(share, _BAR)} {words}", width))
    if spent := ", ".join(_spent(run, now)):
        lines.append(Text(shorten(spent, width)))
    if unknown := _unknown(run, now):
        lines.append(Text(shorten(unknown, width), style="dim"))
    return lines


def _news(run: WatchedRun, now: datetime) -> Iterator[tuple[str, str]]:
    """How far it is, what it waits for, and what went wrong."""
    view = run.view
    if view.progress is not None:
        yield progress_words(view.progress, ended=not view.state.active), ""
    if words := idle_line(view):
        yield words, "yellow"
    if view.unavailable is not None:
        yield f"as last recorded: {escape(view.unavailable)}", "yellow"
    if words := waiting_words(view, now):
        yield escape(words), "yellow"
    if words := supervision_words(view, now):
        yield words, "red"
    if view.rank_wait is not None and (words := wait_words(view)):
        yield words, "red" if view.rank_wait.alarm else "yellow"
    if (cause := view.first_cause) is not None:
        yield cause_words(cause.rank, cause.summary or cause.failure or ""), "red"


def _spent(run: WatchedRun, now: datetime) -> Iterator[str]:
    used = run.gpu_hours(now)
    if run.gpus and used is not None:
        yield f"{hours(used)} GPU hours" + (" so far" if run.view.state.active else "")
    if run.limit_seconds is not None:
        seconds = run.view.seconds(now)
        limit = f"limit {duration(run.limit_seconds)}"
        if run.view.state.active and seconds is not None:
            left = max(0, int(run.limit_seconds - seconds))
            limit += f", {duration(left)} of it left"
        yield limit


def _unknown(run: WatchedRun, now: datetime) -> str:
    """What a reader might miss, and why it is not there."""
    if run.view.state != "running" or run.view.unavailable is not None:
        return ""
    if not run.told:
        return f"what its ranks use is not known while they run on {run.view.backend}"
    if run.measured_at is None:
        return "nothing is measured yet"
    seconds = (now - run.measured_at).total_seconds()
    return f"what ranks use was measured {duration(int(seconds))} ago" if seconds > _STALE else ""


def _remarks(run: WatchedRun, width: int) -> list[Text]:
    """The ranks that differ, in words."""
    differ = [one for one in run.ranks if one.differs]
    lines = [
        Text(shorten(f"! rank {one.rank}: {one.differs}", width), style=MARK)
        for one in differ[:_REMARKS]
    ]
    if len(differ) > _REMARKS:
        lines[-1].append(f"; and {count(len(differ) - _REMARKS, 'more rank')}")
    return lines


def _cells(run: WatchedRun, *, room: int, width: int, chosen: int | None) -> list[Text]:
    """All ranks in cells, or if they are too many those around the chosen one."""
    ranks: Sequence[RankView] = run.view.ranks
    per_line = cells_per_line(run, width)
    most, needed = max(1, room - 1), -(-len(ranks) // per_line)
    states = [rank.state for rank in ranks]
    named = ", ".join(f"{states.count(state):,} {state}" for state in dict.fromkeys(states))
    title = f"{len(ranks):,} ranks: {escape(named)}"
    first = 0
    if needed > most:
        at = next((place for place, rank in enumerate(ranks) if rank.rank == chosen), 0)
        line = max(0, min(at // per_line - most // 2, needed - most))
        first = line * per_line
        ranks = ranks[first : first + most * per_line]
        title += f"; {ranks[0].rank:,} to {ranks[-1].rank:,} are shown"
    if run.told:
        on_gpus = any(one.gpu is not None for one in run.ranks)
        title += "; use and memory of their GPUs" if on_gpus else "; use of a core"
    cells = rank_cells(run, ranks, width=width, chosen=chosen)
    return [Text(shorten(title, width), style="dim"), *cells]


def _log(title: str, lines: Sequence[str], room: int, width: int) -> list[Text]:
    if room < 2:
        return []
    heading = shorten(f"── {title} ", width)
    newest = [shorten(plain(line), width) for line in list(lines)[-(room - 1) :]]
    return [
        Text(heading + "─" * (width - columns(heading)), style="dim"),
        *(Text(line, no_wrap=True) for line in newest),
    ]


def _cut(lines: list[Text], width: int) -> list[Text]:
    for line in lines:
        line.truncate(width, overflow="ellipsis")
    return lines


def _with_keys(lines: list[Text], keys: list[str], width: int, height: int) -> list[Text]:
    """The lines, and on the last line of the screen the keys."""
    lines = _cut(lines[: height - 1], width)
    lines += [Text("")] * (height - 1 - len(lines))
    return [*lines, Text(shorten("   ".join([*keys, "q: leave"]), width), style="dim")]
