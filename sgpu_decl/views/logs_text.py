"""Lines of ranks as text that is safe for a terminal."""

import re

__all__ = ["clean", "prefix"]

# everything that can move the cursor, retitle the window or answer back; colours may pass
_COLOUR_OR_CONTROL = re.compile(
    r"(\x1b\[[0-9;:]*m)|[\x00-\x08\x0a-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
)


def clean(text: str) -> str:
    """Keep tabs and colours (SGR), escape every other control character.

    Of a line that a progress bar rewrote with carriage returns, the last writing is kept, as a
    terminal would show it.
    """
    if text.isprintable():
        return text
    if "\r" in text:
        text = next((part for part in reversed(text.split("\r")) if part), "")
    cleaned = _COLOUR_OR_CONTROL.sub(_escape, text)
    # a colour that the line left on must not run into the next one
    return cleaned + "\x1b[0m" if _left_on(cleaned) else cleaned


def prefix(label: str, rank: int) -> str:
    """What stands before a line where several ranks or runs are shown."""
    return f"[{label} {rank}] "


def _escape(match: re.Match[str]) -> str:
    if match[1]:
        return match[1]
    character = match[0]
    return f"\\x{ord(character):02x}" if ord(character) < 256 else f"\\u{ord(character):04x}"


def _left_on(text: str) -> bool:
    last = text.rfind("\x1b[")
    return last >= 0 and not re.match(r"\x1b\[0*m", text[last:])
