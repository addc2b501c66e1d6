"""The values of a run's secrets, kept out of what a rank leaves and out of what it prints."""

import json

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from typing import Any

_MASK = "***"
_SHORTEST = 4  # characters; a shorter value would hide common words


class SecretValues:
    """The values of secrets, by name. Each line of a value counts: a private key has many."""

    def __init__(self, secrets: "Mapping[str, str]") -> None:
        self._names: dict[str, str] = {}  # by value
        for name, value in secrets.items():
            for part in map(str.strip, (value, *value.splitlines())):
                if len(part) >= _SHORTEST:
                    self._names.setdefault(part, name)
        self._ordered = sorted(self._names, key=len, reverse=True)

    def hide(self, text: str) -> str:
        for value in self._ordered:
            text = text.replace(value, _MASK)
        return text

    def hidden(self, value: "Any") -> "Any":
        """A value of JSON in which texts, and numbers that are a secret, are hidden."""
        if isinstance(value, str):
            return self.hide(value)
        if isinstance(value, list):
            return [self.hidden(one) for one in value]
        if isinstance(value, dict):
            return {self.hide(key): self.hidden(one) for key, one in value.items()}
        return _MASK if json.dumps(value) in self._names else value

    def names_in(self, value: "Any") -> list[str]:
        """The names of the secrets whose values a value of JSON holds."""
        return self.names_in_bytes("\n".join(_texts(value)).encode("utf-8", "surrogatepass"))

    def names_in_bytes(self, data: "Any") -> list[str]:
        """The names of the secrets whose values are in bytes, or in a mapped file."""
        return sorted(
            {
                name
                for value, name in self._names.items()
                if data.find(value.encode("utf-8", "surrogateescape")) >= 0
            }
        )


def _texts(value: "Any") -> "Iterator[str]":
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for one in value:
            yield from _texts(one)
    elif isinstance(value, dict):
        yield from value
        for one in value.values():
            yield from _texts(one)
    else:
        yield json.dumps(value)


class Redaction:
    """Replaces every spelling of a value by `***`, the longest first.

    If the stream ends with the beginning of a value, that part is held back until more comes or
    `finish` is called. No spelling has a newline, so whole lines are never held back.
    """

    def __init__(self, spellings: "Sequence[str]") -> None:
        encoded = (text.encode("utf-8", "surrogateescape") for text in spellings)
        self._spellings = sorted(encoded, key=len, reverse=True)
        self._tail = b""
        self._finished = False

    def __call__(self, data: bytes) -> bytes:
        """Return what can be written now."""
        data, self._tail = self._tail + data, b""
        for spelling in self._spellings:
            if spelling in data:
                data = data.replace(spelling, b"***")
        if self._finished or data.endswith(b"\n"):
            return data
        overlap = max((_overlap(data, spelling) for spelling in self._spellings), default=0)
        end = len(data) - overlap
        self._tail = data[end:]
        return data[:end]

    def finish(self) -> bytes:
        """Return what was held back, and hold back nothing more."""
        self._finished = True
        return self(b"")


def _overlap(data: bytes, spelling: bytes) -> int:
    """Return how many bytes at the end of `data` are the beginning of the spelling."""
    for length in range(min(len(data), len(spelling) - 1), 0, -1):
        if data.endswith(spelling[:length]):
            return length
    return 0
