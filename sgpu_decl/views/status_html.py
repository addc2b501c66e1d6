"""One run as a notebook shows it."""

import html
from collections.abc import Mapping

from sgpu_decl.model.jsonable import Json
from sgpu_decl.views.html import code, page, prose, table
from sgpu_decl.views.status_text import ending, failure, links, mappings
from sgpu_decl.views.terminal import count

__all__ = ["render"]

_ROWS = 64


def render(run: Mapping[str, Json]) -> str:
    """Return a `status` object of the public contract as HTML: state, ranks, first cause, links."""
    ranks = mappings(run.get("ranks"))
    rows = [(str(rank.get("rank")), str(rank.get("state")), _how(rank)) for rank in ranks[:_ROWS]]
    more = len(ranks) - _ROWS
    trace = failure(run)
    return page(
        prose(ending(run, colour=False)),
        table(("rank", "state", "exit"), rows) if rows else "",
        count(more, "more rank") if more > 0 else "",
        f"<pre>{html.escape(trace)}</pre>" if trace else "",
        table(("", ""), ((name, _link(to)) for name, to in links(run))),
    )


def _how(rank: Mapping[str, Json]) -> str:
    how = rank.get("signal") or rank.get("exit_code")
    return "" if how is None else code(str(how))


def _link(target: str) -> str:
    if target.startswith(("http://", "https://")):
        url = html.escape(target)
        return f'<a href="{url}" target="_blank" rel="noopener">{url}</a>'
    return code(target)
