"""Reads a TOML lock file, with the line numbers of its entries."""

import re
import tomllib
from dataclasses import dataclass
from typing import Any

from sgpu_decl.diagnostics.diagnostic import Diagnostic
from sgpu_decl.diagnostics.place import Place

# Before Python 3.14 tomllib gives the place only in its message.
_PLACE = re.compile(r"\(at (?:line (\d+), column (\d+)|end of document)\)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Toml:
    """`entries` maps the name of an array of tables to the line of each `[[name]]`."""

    file: str
    data: dict[str, Any]
    entries: dict[str, tuple[int, ...]]

    def place(self, name: str, index: int) -> Place:
        """The place of an entry of an array; the start of the file for an inline array."""
        lines = self.entries.get(name, ())
        return Place(self.file, lines[index] if index < len(lines) else 1, 1)

    @property
    def top(self) -> Place:
        return Place(self.file, 1, 1)


def read_toml(text: str, file: str) -> Toml | Diagnostic:
    """Parse the text of a file (`file` is for places), or return the error."""
    try:
        data = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        return _syntax(str(error), text, file)
    entries: dict[str, list[int]] = {}
    for number, line in enumerate(text.split("\n"), 1):
        if line.startswith("[["):
            entries.setdefault(line.strip().strip("[]"), []).append(number)
    return Toml(file=file, data=data, entries={entry: tuple(at) for entry, at in entries.items()})


def table(value: object) -> dict[str, Any]:
    """The table, or an empty one."""
    return value if isinstance(value, dict) else {}


def tables(value: object) -> list[dict[str, Any]]:
    """The tables in an array; none if it is no array."""
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def texts(value: object) -> list[str]:
    """The texts in an array; none if it is no array."""
    return [item for item in value if isinstance(item, str)] if isinstance(value, list) else []


def text_of(value: object) -> str | None:
    return value if isinstance(value, str) and value else None


def _syntax(words: str, text: str, file: str) -> Diagnostic:
    match = _PLACE.search(words)
    last = text.rstrip("\n").count("\n") + 1
    line, column = (int(match[1]), int(match[2])) if match and match[1] else (last, 1)
    cause = _PLACE.sub("", words).strip().rstrip(".")
    return Diagnostic(
        code="lock_syntax",
        summary=f"the file is not valid TOML: {cause[:1].lower()}{cause[1:]}",
        place=Place(file, line, column),
        hint="make the lock file again; it may have been cut off or merged by hand",
    )
