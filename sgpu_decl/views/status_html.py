"""One run as a notebook shows it."""

import html
from datetime import datetime

from sgpu_decl.model.attempt_view import AttemptView, RankView
from sgpu_decl.views.html import code, page, prose, table
from sgpu_decl.views.status_text import ending, failure, links
from sgpu_decl.views.terminal import count

_ROWS = 64


def render(view: AttemptView, *, now: datetime) -> str:
    """Return an attempt as HTML: state, ranks, first cause, links."""
    rows = [(str(rank.rank), rank.state, _how(rank)) for rank in view.ranks[:_ROWS]]
    more = len(view.ranks) - _ROWS
    trace = failure(view)
    return page(
        prose(ending(view, now=now, colour=False)),
        table(("rank", "state", "exit"), rows) if rows else "",
        count(more, "more rank") if more > 0 else "",
        f"<pre>{html.escape(trace)}</pre>" if trace else "",
        table(("", ""), ((name, _link(to)) for name, to in links(view))),
    )


def _how(rank: RankView) -> str:
    how = rank.signal or rank.exit_code
    return "" if how is None else code(str(how))


def _link(target: str) -> str:
    if target.startswith(("http://", "https://")):
        url = html.escape(target)
        return f'<a href="{url}" target="_blank" rel="noopener">{url}</a>'
    return code(target)
