"""Text that is safe on a terminal, and amounts in words."""

import re
import unicodedata
from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum
from types import MappingProxyType

__all__ = [
    "Colour",
    "age",
    "columns",
    "count",
    "duration",
    "escape",
    "hours",
    "paint",
    "shorten",
    "size",
]

# Control characters (C0, DEL, C1), line and paragraph separators, and all that reorder or hide
# text: what a user's value holds must not move the cursor or show another line than it is.
_UNSAFE = re.compile(
    "[\x00-\x1f\x7f-\x9f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    "\ud800-\udfff\U000e0000-\U000e007f]"
)
_SHORT: Mapping[str, str] = MappingProxyType({"\n": "\\n", "\r": "\\r", "\t": "\\t"})


class Colour(StrEnum):
    RED = "31"
    GREEN = "32"
    YELLOW = "33"
    CYAN = "36"
    DIM = "2"
    BOLD = "1"


def escape(text: str) -> str:
    """Return `text` on one line, with control, invisible and reordering characters spelled out."""
    return _UNSAFE.sub(_spelled, text)


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
    used = 0
    for index, character in enumerate(text):
        used += _columns_of(character)
        if used > limit - 1:
            return text[:index] + "…"
    return text


def count(number: int, one: str, many: str | None = None) -> str:
    """Return `1 file`, `2 files`, `9,990 files`."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def size(number: int) -> str:
    """Return a number of bytes in decimal units: `512 B`, `34.5 kB`, `1.2 GB`."""
    if number < 1000:
        return f"{number} B"
    amount = float(number)
    for unit in ("kB", "MB", "GB", "TB"):
        amount /= 1000
        if amount < 999.95 or unit == "TB":
            break
    return f"{amount:,.1f} {unit}"


def duration(seconds: float) -> str:
    """Return a duration in its two greatest units: `3 d 4 h`, `6 h`, `1 m 30 s`, `0.2 s`."""
    if seconds < 10:
        return f"{max(0.0, seconds):.1f} s".replace(".0 s", " s")
    left = round(seconds)
    parts: list[str] = []
    for unit, length in (("d", 86400), ("h", 3600), ("m", 60), ("s", 1)):
        amount, left = divmod(left, length)
        if amount or parts:
            parts.append(f"{amount} {unit}" if amount else "")
    return " ".join(part for part in parts[:2] if part)


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


def _spelled(match: re.Match[str]) -> str:
    character = match[0]
    code = ord(character)
    if character in _SHORT:
        return _SHORT[character]
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def _columns_of(character: str) -> int:
    if unicodedata.combining(character):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1
