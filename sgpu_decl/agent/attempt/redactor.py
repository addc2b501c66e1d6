"""Removes secret values from texts that are reported or shown."""

from __future__ import annotations

from binascii import b2a_base64

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["Redactor"]

# Shorter values are ordinary words of logs, and not secrets.
_SHORTEST = 4
_PLAIN = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.-~")


class Redactor:
    """Replaces values by `***`, in plain form, in base64, and as in a URL.

    Each line of a long value (a private key) is replaced, since logs are read line by line.
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
        """The spellings without a newline, which can be masked line by line."""
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
