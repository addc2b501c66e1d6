"""The ranks of a run as rows, or where these are too many as cells, several of them on a line.
Imports rich, so only `sgpu top` may import this."""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import NamedTuple

from rich.text import Text

from sgpu_decl.model.attempt_view import RankView
from sgpu_decl.model.rank_activity import RankActivity, WatchedRun
from sgpu_decl.views.rank_output_text import plain
from sgpu_decl.views.terminal import columns, escape, shorten, size

STYLES = {
    "running": "cyan", "succeeded": "green", "failed": "red", "lost": "red", "stopped": "yellow",
    "stopping": "yellow", "cancelled": "yellow",
}  # fmt: skip
MARK = "yellow"
_LINE = 12  # columns that the last line of a log has at least
_LESS_WANTED = ("MEMORY", "CPU", "GPU GiB", "STEP", "AGE")  # where a terminal is narrow
_BLOCKS = " ▁▂▃▄▅▆▇█"
_BAR = 4  # columns of a bar
_FULL, _EMPTY = "█", "░"
_UNKNOWN = "-"


class _Column(NamedTuple):
    """`cell` gives its text, which is aligned to the left or the right."""

    title: str
    cell: Callable[[RankView, RankActivity], str]
    right: bool = True


def rank_table(
    run: WatchedRun, ranks: Sequence[RankView], *, now: datetime, width: int, chosen: int | None
) -> list[Text]:
    """A heading, and a row for each of these ranks, if there are some. What nobody knows of any
    rank has no column."""
    if not ranks:
        return []
    known = {one.rank: one for one in run.ranks}
    rows = [(rank, known.get(rank.rank) or RankActivity(rank=rank.rank)) for rank in ranks]
    shown = _columns(known, now)
    least = _LINE if any(one.last_line is not None for one in run.ranks) else 0
    for title in ("", *_LESS_WANTED):
        shown = [column for column in shown if column.title != title]
        cells = [[column.cell(*row) for column in shown] for row in rows]
        widths = [
            max([len(column.title), *(columns(row[at]) for row in cells)])
            for at, column in enumerate(shown)
        ]
        left = width - 2 - sum(widths) - 2 * len(widths)  # for the last line of the log
        if left >= least:
            break
    heading = _row("  ", [column.title for column in shown], shown, widths)
    lines = [Text((heading + ("LAST LINE" if least else "")).rstrip(), style="dim")]
    for (rank, activity), row in zip(rows, cells, strict=True):
        line = Text(no_wrap=True, end="")
        mark = ">" if rank.rank == chosen else " "
        line.append(mark, style="bold")
        line.append("!" if activity.differs else " ", style=MARK)
        before = _row("", row[:1], shown, widths)
        line.append(before, style="bold" if rank.rank == chosen else "")
        line.append(_row("", row[1:2], shown[1:], widths[1:]), style=STYLES.get(rank.state, ""))
        line.append(_row("", row[2:], shown[2:], widths[2:]))
        if activity.last_line is not None:
            line.append(shorten(plain(activity.last_line), max(1, left)))
        line.rstrip()
        lines.append(line)
    return lines


def _row(before: str, cells: Sequence[str], shown: Sequence[_Column], widths: Sequence[int]) -> str:
    parts = []
    for text, column, width in zip(cells, shown, widths, strict=False):
        space = " " * (width - columns(text))
        parts.append((space + text if column.right else text + space) + "  ")
    return before + "".join(parts)


def _columns(known: Mapping[int, RankActivity], now: datetime) -> list[_Column]:
    every = known.values()
    shown = [
        _Column("RANK", lambda rank, _: str(rank.rank)),
        _Column("STATE", lambda rank, _: escape(rank.state), right=False),
    ]
    if any(one.step is not None for one in every):
        shown.append(_Column("STEP", lambda _, one: _number(one.step)))
    if any(one.gpu is not None for one in every):
        shown.append(_Column("GPU", lambda _, one: _bar_of(one.gpu, 100, _percent(one.gpu))))
    if any(one.gpu_memory is not None for one in every):
        shown.append(_Column("GPU GiB", _gpu_memory))
    if any(one.cpu is not None for one in every):
        shown.append(_Column("CPU", lambda _, one: _percent(one.cpu)))
    if any(one.memory is not None for one in every):
        shown.append(_Column("MEMORY", lambda _, one: _size(one.memory)))
    if any(one.written_at is not None for one in every):
        shown.append(_Column("AGE", lambda _, one: _age(one.written_at, now)))
    return shown


def cells_per_line(run: WatchedRun, width: int) -> int:
    return max(1, width // _cell_width(run))


def rank_cells(
    run: WatchedRun, ranks: Sequence[RankView], *, width: int, chosen: int | None
) -> list[Text]:
    """The ranks in cells, `cells_per_line` on each line: the number, the height of GPU use and of
    GPU memory, and the use in percent; of the processor where there is no GPU. A rank that does not
    run shows its state."""
    known = {one.rank: one for one in run.ranks}
    digits, per_line = _digits(run), cells_per_line(run, width)
    lines = []
    for first in range(0, len(ranks), per_line):
        line = Text(no_wrap=True, end="")
        for rank in ranks[first : first + per_line]:
            one = known.get(rank.rank) or RankActivity(rank=rank.rank)
            mark = ">" if rank.rank == chosen else "!" if one.differs else " "
            style = "bold" if rank.rank == chosen else MARK if one.differs else ""
            line.append(f"{mark}{rank.rank:>{digits}} ", style=style)
            if rank.state != "running":
                word = "done" if rank.state == "succeeded" else shorten(escape(rank.state), 6)
                line.append(f"{word:<6}", style=STYLES.get(rank.state, ""))
            else:
                high = _block(one.gpu, 100) + _block(one.gpu_memory, one.gpu_room)
                line.append(f"{high:>2}", style="cyan")
                line.append(f"{_percent(one.cpu if one.gpu is None else one.gpu):>4}", style=style)
        line.rstrip()
        lines.append(line)
    return lines


def _digits(run: WatchedRun) -> int:
    return len(str(max((rank.rank for rank in run.view.ranks), default=0)))


def _cell_width(run: WatchedRun) -> int:
    return 1 + _digits(run) + 1 + 6


def bar(share: float, width: int) -> str:
    """A bar of `width` columns, of which a share from 0 to 1 is full."""
    full = round(max(0.0, min(1.0, share)) * width)
    return _FULL * full + _EMPTY * (width - full)


def _bar_of(value: int | None, whole: int | None, text: str) -> str:
    return text if value is None or not whole else f"{bar(value / whole, _BAR)} {text:>4}"


def _block(value: int | None, whole: int | None) -> str:
    if value is None or not whole:
        return ""
    return _BLOCKS[max(0, min(8, round(8 * value / whole)))]


def _gpu_memory(_: RankView, one: RankActivity) -> str:
    if one.gpu_memory is None:
        return _UNKNOWN
    if not one.gpu_room:
        return _size(one.gpu_memory)
    used, room = round(one.gpu_memory / 1024), round(one.gpu_room / 1024)
    return f"{bar(one.gpu_memory / one.gpu_room, _BAR)} {used}/{room}"


def _percent(value: int | None) -> str:
    if value is None:
        return _UNKNOWN
    return f"{value}%" if value < 1000 else str(min(value, 9999))


def _number(value: int | None) -> str:
    return _UNKNOWN if value is None else f"{value:,}"


def _size(mebibytes: int | None) -> str:
    return _UNKNOWN if mebibytes is None else size(mebibytes << 20)


def _age(then: datetime | None, now: datetime) -> str:
    if then is None:
        return _UNKNOWN
    seconds = max(0, int((now - then).total_seconds()))
    for unit, length in (("d", 86_400), ("h", 3600), ("m", 60)):
        if seconds >= length:
            return f"{seconds // length} {unit}"
    return f"{seconds} s"
