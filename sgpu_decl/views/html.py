"""What notebooks show is HTML of ours around text of others, which is always escaped."""

import html
from collections.abc import Iterable, Sequence

from sgpu_decl.diagnostics.masks import mask
from sgpu_decl.views.terminal import escape

_CELL = ' style="text-align:left"'


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
