"""The registry of all codes: what each one means, an example, and the way out.

The codes stand in `codes.toml`. `sgpu explain`, the Tab key and the pages in `docs/` read it;
nothing else does, so that no other command pays for it. A test compares it with the source:
every code that is emitted, with its severities and exit code, is in the registry, and no other.
"""

import tomllib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

from sgpu_decl.diagnostics.diagnostic import Severity
from sgpu_decl.frozen_dataclass import dataclass

__all__ = ["CodeEntry", "registry"]

FILE = Path(__file__).with_name("codes.toml")


@dataclass(frozen=True, slots=True, kw_only=True)
class CodeEntry:
    """One code. A check has severities, an error has an exit code; some codes are both.

    Exactly one of `yaml` and `example` is given: lines of a file that give the code, or words.
    """

    id: str
    severities: tuple[Severity, ...]
    exit_code: int | None
    meaning: str
    yaml: str | None
    example: str | None
    solution: str

    def to_json(self) -> dict[str, Any]:
        return {
            "code": self.id,
            "severities": [str(severity) for severity in self.severities],
            "exit_code": self.exit_code,
            "meaning": self.meaning,
            "example": self.yaml or self.example,
            "solution": self.solution,
        }


@cache
def registry() -> Mapping[str, CodeEntry]:
    """All codes by name, in the order of the alphabet."""
    entries = tomllib.loads(FILE.read_text(encoding="utf-8"))
    return MappingProxyType({id_: _code(id_, entries[id_]) for id_ in sorted(entries)})


def _code(id_: str, entry: Mapping[str, Any]) -> CodeEntry:
    """One entry of the file, or ValueError: it is not as the head of the file says."""
    names = {"severity", "exit", "meaning", "yaml", "example", "solution"}
    if not names.issuperset(entry) or ("yaml" in entry) == ("example" in entry):
        raise ValueError(f"the entry of `{id_}` in `{FILE}` is not as the head of the file says")
    return CodeEntry(
        id=id_,
        severities=tuple(Severity(severity) for severity in entry.get("severity", ())),
        exit_code=entry.get("exit"),
        meaning=entry["meaning"],
        yaml=entry.get("yaml"),
        example=entry.get("example"),
        solution=entry["solution"],
    )
