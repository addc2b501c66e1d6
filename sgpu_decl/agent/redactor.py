"""Secret values kept out of what is reported and shown."""

from __future__ import annotations

from binascii import b2a_base64

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["Redactor"]

# Shorter values are words that every log is full of, and no secrets.
_SHORTEST = 4
_PLAIN = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.-~")


class Redactor:
    """Puts `***` for values, as they are and as base64 or a URL spells them.

    Of a value of several lines (a private key) each line counts, since logs are shown by lines.
    """

    def __init__(self, values: Iterable[str]) -> None:
        forms: set[str] = set()
        for value in values:
            for part in (value, *value.splitlines()):
                if len(part.strip()) >= _SHORTEST:
                    forms.update(_spellings(part.strip()))
        self._forms = sorted(forms, key=len, reverse=True)

    @property
    def in_lines(self) -> list[str]:
        """The spellings that have no newline: those that can be masked in a text line by line."""
        return [form for form in self._forms if "\n" not in form]

    def __call__(self, text: str) -> str:
        for form in self._forms:
            if form in text:
                text = text.replace(form, "***")
        return text


def _spellings(value: str) -> tuple[str, str, str]:
    data = value.encode("utf-8", "surrogateescape")
    quoted = "".join(chr(byte) if byte in _PLAIN else f"%{byte:02X}" for byte in data)
    return value, b2a_base64(data, newline=False).decode().rstrip("="), quoted
