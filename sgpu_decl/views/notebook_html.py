"""What notebooks show: HTML of ours around text of others, which is always escaped."""

import html
from collections.abc import Iterable, Sequence
from datetime import datetime

from sgpu_decl.diagnostics.masks import mask
from sgpu_decl.model.attempt_view import AttemptView, RankView
from sgpu_decl.views.failure_text import kind_words
from sgpu_decl.views.run_progress_text import progress_words
from sgpu_decl.views.status_text import ending, failure, links, usage_line
from sgpu_decl.views.terminal import count, escape, shorten

_CELL = ' style="text-align:left"'
_ROWS = 64
_COLUMNS = 120


def prose(text: str) -> str:
    """Words with literals in backticks."""
    parts = html.escape(escape(mask(text))).split("`")
    if len(parts) % 2 == 0:
        return "`".join(parts)
    return "".join(f"<code>{item}</code>" if at % 2 else item for at, item in enumerate(parts))


def code(text: str) -> str:
    return f"<code>{html.escape(escape(mask(text)))}</code>"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table of cells that are HTML already."""
    first = "".join(f"<th{_CELL}>{item}</th>" for item in head)
    body = "".join(
        "<tr>" + "".join(f"<td{_CELL}>{item}</td>" for item in row) + "</tr>" for row in rows
    )
    return f"<table><thead><tr>{first}</tr></thead><tbody>{body}</tbody></table>"


def page(*parts: str) -> str:
    """Parts below each other; empty ones are left out."""
    return "<div>" + "".join(f"<div>{part}</div>" for part in parts if part) + "</div>"


def results_page(values: Sequence[object], *, title: str) -> str:
    """Return one row for each rank; long values are cut. `title` is the attempt."""
    rows = [
        (str(rank), code(shorten(repr(item), _COLUMNS))) for rank, item in enumerate(values[:_ROWS])
    ]
    more = len(values) - _ROWS
    rest = count(more, "more rank") if more > 0 else ""
    return page(prose(f"`{title}` returned") if title else "", table(("rank", "value"), rows), rest)


def status_page(view: AttemptView, *, now: datetime) -> str:
    """Return an attempt as HTML: state, ranks, first cause, links."""
    rows = [(str(rank.rank), rank.state, _how(rank)) for rank in view.ranks[:_ROWS]]
    more = len(view.ranks) - _ROWS
    trace = failure(view)
    return page(
        prose(ending(view, now=now, colour=False)),
        prose(usage_line(view)) if usage_line(view) else "",
        _bar(view),
        table(("rank", "state", "exit"), rows) if rows else "",
        count(more, "more rank") if more > 0 else "",
        f"<pre>{html.escape(trace)}</pre>" if trace else "",
        *map(prose, kind_words(view.first_cause).splitlines()),
        table(("", ""), ((name, link(to)) for name, to in links(view))),
    )


def _bar(view: AttemptView) -> str:
    progress = view.progress
    if progress is None:
        return ""
    words = prose(progress_words(progress, ended=not view.state.active))
    if progress.percent is None:
        return words
    return f'<progress max="100" value="{progress.percent:g}"></progress> {words}'


def _how(rank: RankView) -> str:
    how = rank.signal or rank.exit_code
    return "" if how is None else code(str(how))


def link(target: str) -> str:
    """A target as a link if it is an address, else as text."""
    if target.startswith(("http://", "https://")):
        url = html.escape(target)
        return f'<a href="{url}" target="_blank" rel="noopener">{url}</a>'
    return code(target)
