"""Lines of ranks as text that is safe for a terminal."""

import re

from sgpu_decl.views.terminal import escape

__all__ = ["clean", "prefix"]

# colours (SGR) and tabs pass; all else that a terminal obeys is spelled out
_PASSES = re.compile(r"(\x1b\[[0-9;:]*m|\t)")
_RESET = re.compile(r"\x1b\[0*m")


def clean(text: str) -> str:
    """Keep tabs and colours, escape every other control character.

    Of a line that a progress bar rewrote with carriage returns, the last writing is kept, as a
    terminal would show it. A colour that the line leaves on is ended with it.
    """
    if text.isascii() and text.isprintable():
        return text
    if "\r" in text:
        text = next((part for part in reversed(text.split("\r")) if part), "")
    pieces = _PASSES.split(text)
    colours = [piece for piece in pieces[1::2] if piece != "\t"]
    pieces[::2] = [escape(piece) for piece in pieces[::2]]
    left_on = bool(colours) and not _RESET.fullmatch(colours[-1])
    return "".join(pieces) + ("\x1b[0m" if left_on else "")


def prefix(label: str, rank: int | None) -> str:
    """What stands before a line where several ranks or runs are shown; a node has no rank."""
    return f"[{label}] " if rank is None else f"[{label} {rank}] "
