"""What the ranks returned, as a table of a notebook."""

from collections.abc import Sequence

from sgpu_decl.views.html import code, page, prose, table
from sgpu_decl.views.terminal import count, shorten

_ROWS = 64
_COLUMNS = 120


def render(values: Sequence[object], *, title: str) -> str:
    """Return one row for each rank; long values are cut. `title` is the attempt."""
    rows = [
        (str(rank), code(shorten(repr(item), _COLUMNS))) for rank, item in enumerate(values[:_ROWS])
    ]
    more = len(values) - _ROWS
    rest = count(more, "more rank") if more > 0 else ""
    return page(prose(f"`{title}` returned") if title else "", table(("rank", "value"), rows), rest)
