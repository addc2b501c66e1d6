"""What is wrong, where, and what to do about it."""

from collections.abc import Iterable
from dataclasses import field
from enum import StrEnum
from typing import Any

from sgpu_decl.diagnostics.place import Place
from sgpu_decl.frozen_dataclass import UNWRITTEN, dataclass, written_as


class Severity(StrEnum):
    ERROR = "error"
    WARNING = "warning"
    INFO = "info"


@dataclass(frozen=True, slots=True, kw_only=True)
class Related:
    """A second place that explains the first, such as the other of two equal keys."""

    place: Place
    note: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnostic:
    """One finding: of a file, or, as a check, of a plan, which has its JSON by these fields.

    Attributes:
        code: stable (`unknown_key`).
        address: the resource that it is about, as text (`run.train`).
        summary: starts in lower case, without a full stop, literals in backticks.
        hint: the next step.
        incomplete: somebody could not be asked, so that a plan without the answer is not complete.
        path: the field that it is about, in its block, while the place is not known.
        of_key: the key of `path` is meant, and not the value.
    """

    code: str = field(metadata=written_as("id"))
    severity: Severity = Severity.ERROR
    address: str | None = None
    summary: str
    hint: str | None = None
    place: Place | None = None
    related: tuple[Related, ...] = field(default=(), metadata=UNWRITTEN)
    incomplete: bool = field(default=False, metadata=UNWRITTEN)
    path: tuple[str, ...] = field(default=(), metadata=UNWRITTEN)
    of_key: bool = field(default=False, metadata=UNWRITTEN)

    def __str__(self) -> str:
        """One line: place, severity, summary and hint."""
        where = f"{self.place}: " if self.place is not None else ""
        hint = f"; {self.hint}" if self.hint else ""
        return f"{where}{self.severity}: {self.summary}{hint}"

    def to_json(self) -> dict[str, Any]:
        """The diagnostic of the public JSON contract."""
        return {
            "code": self.code,
            "severity": str(self.severity),
            "summary": self.summary,
            "file": self.place.file if self.place else None,
            "line": self.place.line if self.place else None,
            "column": self.place.column if self.place else None,
            "hint": self.hint,
            "related": [{**other.place.to_json(), "note": other.note} for other in self.related],
        }


def has_errors(diagnostics: Iterable[Diagnostic]) -> bool:
    return any(finding.severity is Severity.ERROR for finding in diagnostics)


def in_order(diagnostics: Iterable[Diagnostic]) -> tuple[Diagnostic, ...]:
    """Sorted by place, without repetition; those without a place last."""
    last = Place("\U0010ffff", 0, 0)
    unique = dict.fromkeys(diagnostics)
    return tuple(sorted(unique, key=lambda finding: (finding.place or last, finding.code)))
