"""Text that is safe on a terminal: characters that it would obey, hide or reorder are escaped."""

import re
from collections.abc import Mapping
from types import MappingProxyType

OBEYED = (
    "[\x00-\x1f\x7f-\x9f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    "\ud800-\udfff\U000e0000-\U000e007f]"
)
"""Control characters (C0, DEL, C1), line and paragraph separators, and all that reorder or hide
text: what a user's value holds must not move the cursor or show another line than it is."""
_SHORT: Mapping[str, str] = MappingProxyType({"\n": "\\n", "\r": "\\r", "\t": "\\t"})


def escape(text: str) -> str:
    """Return `text` on one line, with control, invisible and reordering characters spelled out."""
    if text.isascii() and text.isprintable():
        return text
    return re.sub(OBEYED, _spelled, text)  # compiled when it is first needed


def printable(text: str) -> str:
    """Return `text` with its line breaks, and all else spelled out; tabs become spaces."""
    return "\n".join(map(escape, text.replace("\t", " ").split("\n")))


def _spelled(match: re.Match[str]) -> str:
    character = match[0]
    code = ord(character)
    if character in _SHORT:
        return _SHORT[character]
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
