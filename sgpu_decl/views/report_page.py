"""The report of an attempt, or of several runs side by side: one HTML file that needs no network.

Text of others is always escaped, and the page's own policy forbids requests and all scripts but its
two: https://developer.mozilla.org/en-US/docs/Web/HTTP/Reference/Headers/Content-Security-Policy
"""

import base64
import hashlib
import html
import json
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime

from sgpu_decl.diagnostics.amounts import duration
from sgpu_decl.diagnostics.masks import masked
from sgpu_decl.distribution import extra_command, shipped_folder
from sgpu_decl.model.attempt_report import REPORT_MARK, AttemptReport, UsagePlot
from sgpu_decl.model.attempt_view import AttemptView, RankView
from sgpu_decl.model.jsonable import Json
from sgpu_decl.model.run_table import SYSTEM_METRICS, RunRow, RunTable, TableColumn
from sgpu_decl.model.run_usage import usage_advice, usage_words
from sgpu_decl.views.attempt_diff_text import attempt_diff_text
from sgpu_decl.views.failure_text import blame_words
from sgpu_decl.views.notebook_html import code, link, prose
from sgpu_decl.views.rank_output_text import plain
from sgpu_decl.views.report_plots import (
    LINES,
    Plot,
    curve_plot,
    outliers,
    parallel_plot,
    plot_json,
    plot_library,
    timeline_plot,
    usage_plot,
)
from sgpu_decl.views.results_table import table_cells, unread_lines
from sgpu_decl.views.run_progress_text import progress_words
from sgpu_decl.views.status_text import (
    cause_words,
    files_of,
    how_it_ended,
    links,
    restart_lines,
    supervision_words,
    tally,
    waiting_words,
    way_out_notes,
)
from sgpu_decl.views.terminal import count, escape, hours

_MOST_DIFF = 600  # lines
_MOST_CURVES = 24
_MOST_AXES = 12
_BEST = 3
_MOST_RUNS = 2_000  # lines of parallel coordinates
_WITHOUT_PLOTS = "There are no plots: they need the extra `report`, which `{}` installs."
_LOWER = ("loss", "error", "perplexity", "ppl", "rmse", "mse", "mae", "wer", "latency")
_HIGHER = ("accuracy", "acc", "f1", "auc", "bleu", "rouge", "reward", "score", "throughput", "map")


def attempt_page(report: AttemptReport, *, now: datetime) -> str:
    """The page about one attempt. `now` is what ages count from."""
    view = report.run.view
    return _page(
        str(view.ref),
        [
            _head(view, now),
            *_cause(view, now),
            _facts(report, now),
            *_timeline(report),
            *_usage(report),
            *_metrics(report),
            *_diff(report, now),
            *_last_lines(report),
            *_tables(report, now),
            *_gaps(report.gaps),
        ],
        now,
    )


def table_page(table: RunTable, title: str, *, best: str | None, now: datetime) -> str:
    """The page about several runs.

    Args:
        best: the column whose lowest value is best, `-NAME` where its highest is; None to choose
            one by its name.
    """
    best = best or _best_column(table)
    ordered = table.sorted_by(best, now) if best is not None else table
    counted = tally([row.view.state_word for row in table.rows])
    header, rows = table_cells(ordered, now)
    states = " · ".join(f"backend {code(name)}" for name in _unique(table))
    named = html.escape(escape(title))
    head = f"<header><h1>{named}</h1><p>{html.escape(counted)} · {states}</p></header>"
    marked = _BEST if best is not None and len(rows) > _BEST else 0
    return _page(
        title,
        [
            head,
            *_best(ordered, best),
            *_parallel(ordered, best),
            "<h2>Runs</h2>",
            _table(header, rows, bold=marked),
            *(f"<p class=note>{prose(line)}</p>" for line in unread_lines(table)),
            *_failures(table),
            *_gaps(table.problems),
        ],
        now,
    )


def _page(title: str, parts: Iterable[str], now: datetime) -> str:
    body = "\n".join(part for part in parts if part)
    folder = shipped_folder("templates") / "report"
    style = (folder / "page.css").read_text("utf-8")
    scripts: list[str] = []
    library, words = plot_library(), ""
    if library is None:
        words = f"<p class=note>{prose(_WITHOUT_PLOTS.format(extra_command('report')))}</p>"
    elif "<div class=plot>" in body:
        scripts = [library, (folder / "page.js").read_text("utf-8")]
    hashes = " ".join(f"'sha256-{_digest(script)}'" for script in scripts) or "'none'"
    policy = (
        "default-src 'none'; base-uri 'none'; form-action 'none'; style-src 'unsafe-inline'; "
        f"img-src data:; script-src {hashes}"
    )
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f"{REPORT_MARK}"
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{html.escape(escape(title))}</title><style>{style}</style></head>\n"
        f"<body>{body}\n{words}<p class=note>Made by <code>sgpu report</code> on "
        f"{now:%Y-%m-%d %H:%M} UTC.</p>"
        + "".join(f"<script>{script}</script>" for script in scripts)
        + "</body></html>\n"
    )


def _digest(script: str) -> str:
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()


def _head(view: AttemptView, now: datetime) -> str:
    words = [how_it_ended(view), waiting_words(view, now), supervision_words(view, now)]
    if view.started_at is not None:
        words.append(f"started {view.started_at:%Y-%m-%d %H:%M:%S} UTC")
    elif view.state.active:
        words.append("not started yet")
    else:
        words.append("its ranks never started")
    words.append(f"on `{view.backend}`")
    said = " · ".join(prose(word) for word in words if word)
    state = html.escape(view.state_word)
    return (
        f"<header><h1>{html.escape(escape(str(view.ref)))}</h1>"
        f'<span class="state {state}">{state}</span><p>{said}</p></header>'
    )


def _cause(view: AttemptView, now: datetime) -> Iterator[str]:
    if view.unavailable is not None:
        hints = "".join(f"<p>{prose(hint)}</p>" for hint in way_out_notes([view]))
        yield (
            f"<section class=cause aria-label='not available'><p class=summary>It cannot be asked "
            f"now: {prose(view.unavailable)}</p><p>Shown is what was recorded last.</p>{hints}"
            "</section>"
        )
    wait = view.rank_wait
    if wait is not None:
        words, name = prose(wait.summary), "hang" if wait.alarm else "wait"
        yield f"<section class=cause aria-label='{name}'><p class=summary>{words}</p></section>"
    cause = view.first_cause
    if cause is None:
        return
    kind, told = "", cause.explanation
    if cause.kind is not None and told is not None:
        kind = (
            f"<p>{code(cause.kind)} ({blame_words(told.blame)}): {prose(told.meaning)}</p>"
            f"<p><b>What helps:</b> {prose(told.next_step)}</p>"
        )
    elif cause.failure is not None:
        kind = f"<p>Class {code(cause.failure)}</p>"
    same = ", ".join(map(str, cause.simultaneous))
    also = f"<p>At the same time: rank {same}</p>" if same else ""
    summary = prose(cause_words(cause.rank, cause.summary or str(cause.failure)))
    yield (
        f"<section class=cause aria-label='first cause'><p class=summary>First cause: {summary}"
        f"</p>{kind}{also}{_trace(cause.traceback, files_of(cause))}</section>"
    )
    restarts = restart_lines(view, now)
    if restarts:
        yield "<h3>Restarts</h3>" + "".join(f"<p>{prose(line)}</p>" for line in restarts)


def _trace(traceback: str | None, files: Sequence[str]) -> str:
    lines = [*(traceback or "").rstrip().split("\n"), *files]
    text = "\n".join(map(plain, lines)).strip("\n")
    return f"<pre>{html.escape(text)}</pre>" if text else ""


def _facts(report: AttemptReport, now: datetime) -> str:
    """Plan against actual, and what was used, as tiles."""
    view = report.run.view
    seconds = view.seconds(now)
    tiles: list[tuple[str, str, str]] = []
    if seconds is not None:
        limit = report.limit_seconds
        planned = f"of at most {duration(limit)}" if limit is not None else "no `timeout`"
        tiles.append(("time", duration(seconds), planned))
    if report.gpus and seconds is not None:
        most = report.most_gpu_hours
        planned = f"planned: at most {hours(most)}" if most is not None else "no limit planned"
        tiles.append(("GPU hours", f"{report.gpus * seconds / 3600:.3g}", planned))
    if view.progress is not None:
        words = progress_words(view.progress, ended=not view.state.active)
        step, _, rest = words.partition(", ")
        tiles.append(("progress", step, rest))
    if view.restart or report.retries:
        tiles.append(("restarts", f"{view.restart}", f"of at most {report.retries}"))
    if report.diff is not None:
        good = report.diff.before
        before = good.seconds(now)
        if before and seconds is not None:
            tiles.append(
                (f"last good attempt, #{good.ref.number}", duration(before), _compared(report, now))
            )
    used = usage_words(view.usage) if view.usage is not None else ""
    advice = usage_advice(view.usage) if view.usage is not None else ""
    inner = "".join(
        f"<div><dt>{prose(name)}</dt><dd>{prose(value)}<small>{prose(planned)}</small></dd></div>"
        for name, value, planned in tiles
    )
    line = f"{used[:1].upper()}{used[1:]}{f': {advice}' if advice else ''}."
    efficiency = f"<p aria-label='efficiency'><b>Efficiency:</b> {prose(line)}</p>" if used else ""
    facts = f"<dl class=facts aria-label='plan and actual'>{inner}</dl>" if inner else ""
    return facts + efficiency


def _compared(report: AttemptReport, now: datetime) -> str:
    """The speed beside the last good attempt: by steps a second if both tell them, else by time."""
    diff = report.diff
    if diff is None:
        return ""
    old, new = diff.before.progress, diff.after.progress
    if old is not None and new is not None and old.per_second and new.per_second:
        change = new.per_second / old.per_second - 1
        faster = "faster" if change > 0 else "slower"
        return f"this one: {abs(change):.0%} {faster} per {new.unit}"
    before, after = diff.before.seconds(now), diff.after.seconds(now)
    if not before or after is None or diff.after.state != diff.before.state:
        return ""
    return f"this one took {after / before:.2f} times as long"


def _timeline(report: AttemptReport) -> Iterator[str]:
    if not report.phases and not report.spans:
        return
    yield "<h2>Timeline</h2>"
    words = ", ".join(f"{one.state} {duration(one.end - one.start)}" for one in report.phases)
    yield f"<p class=note>{html.escape(words)}</p>"
    yield _figure("phases and ranks", timeline_plot(report.phases, report.spans))


def _usage(report: AttemptReport) -> Iterator[str]:
    plots = [usage for usage in report.usage if usage.lanes]
    if not plots:
        return
    yield "<h2>What the ranks used</h2>"
    if plot_library() is None:
        yield _table(("", "mean", "highest"), map(_in_words, plots))
        return
    yield "<div class=plots>"
    for usage in plots:
        far = outliers(usage.lanes) if len(usage.lanes) > LINES else []
        many = f"all {len(usage.lanes)}, their median" if len(usage.lanes) > LINES else ""
        more = " and those that differ most" if far else ""
        yield _figure(usage.title, usage_plot(usage), f"{many}{more}")
    yield "</div>"


def _in_words(usage: UsagePlot) -> tuple[str, str, str]:
    values = [one for lane in usage.lanes.values() for one in lane if one is not None]
    mean = sum(values) / len(values)
    return usage.title, f"{mean:.3g} {usage.unit}", f"{max(values):.3g} {usage.unit}"


def _metrics(report: AttemptReport) -> Iterator[str]:
    curves = sorted(
        report.curves, key=lambda one: ("loss" not in one.name, len(one.name), one.name)
    )
    drawn = [one for one in curves if len(one.points) > 1][:_MOST_CURVES]
    if not drawn and not report.values:
        return
    yield "<h2>Metrics</h2>"
    for one in curves:
        if one.lost:
            words = count(one.lost, "value")
            first = f"first at step {one.lost_at}"
            yield f"<p><b>{words} of {code(one.name)} not finite</b>, {first}</p>"
    if drawn and plot_library() is not None:
        yield "<div class=plots>"
        yield from (_figure(one.name, curve_plot(one)) for one in drawn)
        yield "</div>"
    names = {one.name for one in drawn}
    rows = [(code(name), f"{value:.6g}") for name, value in report.values.items()]
    if rows:
        table = _table(("metric", "last value"), rows, raw=True)
        left = set(report.values) - names
        yield table if left else _folded("last values", table)


def _diff(report: AttemptReport, now: datetime) -> Iterator[str]:
    if report.diff is None:
        return
    good = report.diff.before.ref
    yield f"<h2>Differences to {html.escape(escape(str(good)))}, the last good attempt</h2>"
    lines = attempt_diff_text(report.diff, now=now, colour=False).split("\n")
    shown = "".join(map(_diff_line, lines[:_MOST_DIFF]))
    yield f"<pre class=diff aria-label='differences'>{shown}</pre>"
    more = len(lines) - _MOST_DIFF
    if more > 0:
        command = f"`sgpu diff '{good}' '{report.run.view.ref}'` shows"
        yield f"<p class=note>{prose(command)} {count(more, 'more line')}.</p>"


def _diff_line(line: str) -> str:
    classes = {"+": "plus", "-": "minus", "@": "at"}
    kind = classes.get(line.lstrip()[:1], "")
    return f"<span class='{kind}'>{html.escape(plain(line))}</span>"


def _last_lines(report: AttemptReport) -> Iterator[str]:
    if not report.last_lines:
        return
    yield "<h2>Last lines</h2>"
    for tail in report.last_lines:
        text = html.escape("\n".join(map(plain, tail.lines)))
        label = f"last lines of rank {tail.rank}"
        yield f"<h3>rank {tail.rank}</h3><pre aria-label='{label}'>{text}</pre>"


def _tables(report: AttemptReport, now: datetime) -> Iterator[str]:
    view = report.run.view
    rows = [(html.escape(name), link(target)) for name, target in links(view)]
    if rows:
        yield "<h2>Links</h2>" + _table(("", ""), rows, raw=True)
    if view.ranks:
        ranks = _table(("rank", "node", "state", "exit"), map(_rank, view.ranks))
        yield _folded(count(len(view.ranks), "rank"), ranks)
    spec = json.dumps(masked(report.run.spec.fields, ""), indent=2, ensure_ascii=False)
    yield _folded("spec", f"<pre>{html.escape(escape(spec))}</pre>")
    history = [
        (
            f"#{past.ref.number}",
            past.state_word,
            f"{past.started_at:%Y-%m-%d %H:%M}" if past.started_at else "",
            duration(took) if (took := past.seconds(now)) is not None else "",
        )
        for _, past in reversed(report.run.attempts)
    ]
    if len(history) > 1:
        table = _table(("attempt", "state", "started", "took"), history)
        yield _folded(count(len(history), "attempt"), table)


def _rank(rank: RankView) -> tuple[str, ...]:
    how = rank.signal or rank.exit_code
    node = "" if rank.node_rank is None else str(rank.node_rank)
    return str(rank.rank), node, rank.state, "" if how is None else str(how)


def _gaps(gaps: Sequence[str]) -> Iterator[str]:
    if gaps:
        yield "<h2>Not known</h2>"
        yield "".join(f"<p class=note>{prose(gap)}</p>" for gap in gaps)


def _best_column(table: RunTable) -> str | None:
    names = [column.name for column in (*table.returned, *table.metrics)]
    for words, sign in ((_LOWER, ""), (_HIGHER, "-")):
        for name in names:
            parts = name.lower().replace("/", "_").replace(".", "_").split("_")
            if any(word in parts for word in words):
                return f"{sign}{name}"
    return None


def _best(table: RunTable, best: str | None) -> Iterator[str]:
    if best is None or not table.rows:
        return
    name = best.removeprefix("-")
    found = [column for column in (*table.metrics, *table.returned) if column.name == name]
    value = found[0].value(table.rows[0]) if found else None
    if not isinstance(value, int | float):
        return
    row = table.rows[0]
    cell = ", ".join(f"{key}={_brief(one)}" for key, one in row.axes.items())
    which = "highest" if best.startswith("-") else "lowest"
    yield (
        f"<p aria-label='best'><b>Best by {code(name)}</b> ({which}): {_brief(value)} with "
        f"{code(cell or str(row.view.ref))} ({code(str(row.view.ref))})</p>"
    )


def _parallel(table: RunTable, best: str | None) -> Iterator[str]:
    """Parallel coordinates, if the runs differ in something and have a number each."""
    rows = table.rows[:_MOST_RUNS]
    numbers = [
        column
        for column in (*table.returned, *table.metrics)
        if not column.name.startswith(SYSTEM_METRICS)
        and any(isinstance(column.value(row), int | float) for row in rows)
    ]
    last = (best or "").removeprefix("-")
    numbers.sort(key=lambda column: column.name == last)
    axes = [column for column in table.axes if len({_brief(column.value(row)) for row in rows}) > 1]
    if not axes or not numbers or len(rows) < 2:
        return
    room = max(1, _MOST_AXES - len(axes))
    columns = [*axes[:_MOST_AXES], *numbers[-room:]]
    values = {column.name: [_plotted(column, row) for row in rows] for column in columns}
    names = [str(row.view.ref) for row in rows]
    states = [row.view.state_word for row in rows]
    yield "<h2>Parallel coordinates</h2>"
    yield _figure("all runs", parallel_plot(values, names, states), f"colour: {columns[-1].name}")


def _plotted(column: TableColumn, row: RunRow) -> Json:
    value = column.value(row)
    if isinstance(value, float) and value - value != 0:  # NaN, or infinite
        return None
    return value if value is None or isinstance(value, int | float) else _brief(value)


def _failures(table: RunTable) -> Iterator[str]:
    """Each cause of a failure once, with the runs that it stopped."""
    causes: dict[str, list[str]] = {}
    for row in table.rows:
        cause = row.view.first_cause
        if cause is not None:
            words = cause_words(cause.rank, cause.summary or str(cause.failure))
            causes.setdefault(words, []).append(str(row.view.ref))
    if causes:
        yield "<h2>Failures</h2>"
        rows = [(f"{len(refs):,}", words, ", ".join(refs[:5])) for words, refs in causes.items()]
        yield _table(("runs", "first cause", "such as"), rows)


def _unique(table: RunTable) -> list[str]:
    return sorted({row.view.backend for row in table.rows})


def _brief(value: Json) -> str:
    return f"{value:.6g}" if isinstance(value, float) else "" if value is None else str(value)


def _figure(title: str, plot: Plot, note: str = "") -> str:
    """A plot; empty where nothing draws it."""
    name = html.escape(escape(title), quote=True)
    small = f" <small>{html.escape(escape(note))}</small>" if note else ""
    head = f'<figure aria-label="{name}"><figcaption>{name}{small}</figcaption>'
    if plot_library() is None:
        return ""
    data = f'<script type="application/json">{plot_json(plot)}</script>'
    return f"{head}<div class=plot>{data}</div></figure>"


def _table(
    head: Sequence[str], rows: Iterable[Sequence[str]], *, raw: bool = False, bold: int = 0
) -> str:
    """Cells are text, or HTML if they are `raw`; the first `bold` rows stand out."""
    lines = []
    for number, row in enumerate(rows):
        cells = "".join(f"<td>{one if raw else html.escape(plain(one))}</td>" for one in row)
        lines.append(f"<tr{' class=best' if number < bold else ''}>{cells}</tr>")
    top = "".join(f"<th>{html.escape(escape(name))}</th>" for name in head)
    first = f"<thead><tr>{top}</tr></thead>" if any(head) else ""
    return f"<div class=wide><table>{first}<tbody>{''.join(lines)}</tbody></table></div>"


def _folded(title: str, inner: str) -> str:
    return f"<details class=folded><summary>{title}</summary>{inner}</details>"
