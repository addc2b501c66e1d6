"""The registry of all codes: what each one means, an example, and the way out.

The codes stand in `codes.toml`, in families. `sgpu explain`, the Tab key and the site read it;
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

FILE = Path(__file__).with_name("codes.toml")


@dataclass(frozen=True, slots=True, kw_only=True)
class CodeEntry:
    """One code. A check has severities, an error has an exit code; some codes are both.

    Exactly one of `yaml` and `example` is given: lines of a file that give the code, or words.
    """

    id: str
    family: str
    severities: tuple[Severity, ...]
    exit_code: int | None
    meaning: str
    yaml: str | None
    example: str | None
    solution: str

    def to_json(self) -> dict[str, Any]:
        return {
            "code": self.id,
            "family": self.family,
            "severities": [str(severity) for severity in self.severities],
            "exit_code": self.exit_code,
            "meaning": self.meaning,
            "example": self.yaml or self.example,
            "solution": self.solution,
        }


@cache
def registry() -> Mapping[str, CodeEntry]:
    """All codes by name, in the order of the alphabet."""
    families = tomllib.loads(FILE.read_text(encoding="utf-8"))
    codes = [
        _code(id_, family.replace("_", " "), entry)
        for family, entries in families.items()
        for id_, entry in entries.items()
    ]
    return MappingProxyType({code.id: code for code in sorted(codes, key=lambda code: code.id)})


def families() -> Mapping[str, tuple[CodeEntry, ...]]:
    """The codes of each family, such as `saved plans`, both in the order of the alphabet."""
    codes = registry().values()
    return {
        family: tuple(code for code in codes if code.family == family)
        for family in sorted({code.family for code in codes}, key=str.lower)
    }


def _code(id_: str, family: str, entry: Mapping[str, Any]) -> CodeEntry:
    """One entry of the file, or ValueError: it is not as the head of the file says."""
    names = {"severity", "exit", "meaning", "yaml", "example", "solution"}
    if not names.issuperset(entry) or ("yaml" in entry) == ("example" in entry):
        raise ValueError(f"the entry of `{id_}` in `{FILE}` is not as the head of the file says")
    return CodeEntry(
        id=id_,
        family=family,
        severities=tuple(Severity(severity) for severity in entry.get("severity", ())),
        exit_code=entry.get("exit"),
        meaning=entry["meaning"],
        yaml=entry.get("yaml"),
        example=entry.get("example"),
        solution=entry["solution"],
    )
