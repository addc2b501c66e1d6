"""Text that is safe on a terminal, and amounts in words."""

import json
import re
from datetime import datetime
from enum import StrEnum

from sgpu_decl.diagnostics.amounts import size
from sgpu_decl.diagnostics.escapes import OBEYED, escape
from sgpu_decl.diagnostics.masks import mask
from sgpu_decl.model.jsonable import Json

__all__ = [
    "Colour",
    "age",
    "columns",
    "count",
    "escape",
    "hours",
    "json_text",
    "neutral",
    "paint",
    "shorten",
    "size",
    "wrap",
]


class Colour(StrEnum):
    RED = "31"
    GREEN = "32"
    YELLOW = "33"
    CYAN = "36"
    DIM = "2"
    BOLD = "1"


# what `paint` writes, and the line breaks and tabs of our own text
_OURS = rf"\x1b\[(?:0|{'|'.join(Colour)})m|\n|\t"
_NEUTRAL = f"({_OURS})|{OBEYED}"  # compiled when it is first needed
_PLAIN = bytes(range(0x20, 0x7F)) + b"\t\n"
_IN_JSON = f"(\n)|{OBEYED}"
_WORD = r"(?:`[^`\n]*`|\S)+"  # what stands in backticks is copied, so it is one word
_INDENT = " " * len("hint: ")


def neutral(text: str) -> str:
    """Return text in which all that a terminal obeys is escaped, except newlines, tabs and our own
    colours: so a value that a view forgot to escape does no harm."""
    if text.isascii() and not text.encode().translate(None, _PLAIN):
        return text
    return re.sub(_NEUTRAL, lambda match: match[1] or escape(match[0]), text)


def json_text(value: Json, *, indent: int | None = None) -> str:
    """Return JSON for people: other alphabets unchanged, and all that a terminal obeys as escapes
    of JSON. It reads back as the same value."""
    text = json.dumps(value, indent=indent, ensure_ascii=False)
    return re.sub(_IN_JSON, lambda match: match[1] or json.dumps(match[0])[1:-1], text)


def paint(text: str, colour: Colour, *, on: bool) -> str:
    """Wrap `text` in a colour where colour is `on`."""
    return f"\x1b[{colour}m{text}\x1b[0m" if on and text else text


def columns(text: str) -> int:
    """Return how many terminal columns an escaped text takes: wide characters take two."""
    if text.isascii():
        return len(text)
    return sum(_columns_of(character) for character in text)


def shorten(text: str, limit: int) -> str:
    """Cut `text` to `limit` columns, the last of which is then an ellipsis."""
    if columns(text) <= limit:
        return text
    text = mask(text)  # half a token is no token to whoever masks it later
    used = 0
    for index, character in enumerate(text):
        used += _columns_of(character)
        if used > limit - 1:
            return text[:index] + "…"
    return text


def wrap(text: str, width: int | None) -> str:
    """Break the lines of `text` between words where they take more than `width` columns; without a
    width, return it as it is. A command in backticks stays in one line, so that it can be copied.
    """
    if width is None or (columns(text) <= width and "\n" not in text):
        return text
    return "\n".join(_wrapped(line, width) for line in text.split("\n"))


def _wrapped(line: str, width: int) -> str:
    if columns(line) <= width:
        return line
    indent = line[: len(line) - len(line.lstrip())]
    lines, used = indent, len(indent)
    for word in re.findall(_WORD, line):
        wide = columns(word)
        if lines == indent:
            lines, used = lines + word, used + wide
        elif used + 1 + wide <= width:
            lines, used = f"{lines} {word}", used + 1 + wide
        else:
            lines, used = f"{lines}\n{indent}{_INDENT}{word}", len(indent + _INDENT) + wide
    return lines


def count(number: int, one: str, many: str | None = None) -> str:
    """Return `1 file`, `2 files`, `9,990 files`."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def age(then: datetime, now: datetime) -> str:
    """Return how long ago `then` was, in its greatest unit: `3 d ago`; `just now` under a second
    and where clocks disagree."""
    seconds = (now - then).total_seconds()
    for unit, length in (("d", 86400), ("h", 3600), ("m", 60), ("s", 1)):
        if seconds >= length:
            return f"{int(seconds // length):,} {unit} ago"
    return "just now"


def hours(amount: float) -> str:
    """Return GPU hours: `48`, `0.5`, `1,024`."""
    return f"{amount:,.2f}".rstrip("0").rstrip(".")


def _columns_of(character: str) -> int:
    import unicodedata

    if unicodedata.combining(character):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1
