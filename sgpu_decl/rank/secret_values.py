"""The values of a run's secrets, kept out of what a rank leaves."""

import json

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
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
