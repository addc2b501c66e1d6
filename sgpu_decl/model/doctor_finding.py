"""What a check of `sgpu doctor` found."""

from collections.abc import Sequence
from enum import StrEnum

from sgpu_decl.frozen_dataclass import dataclass
from sgpu_decl.model.jsonable import Json

__all__ = ["Finding", "Grade", "counted", "fail", "few", "ok", "warn"]


class Grade(StrEnum):
    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One line of the answer.

    Attributes:
    check: the subject, a short name such as `interpreter`.
    text: one sentence that says what was found.
    hint: the next step, where there is one.
    assumption: the id in `model/assumptions.yaml`, where the check measured one of them;
        `expected` is what it says, `found` the measured value.
    run: the run of a probe that it comes from, one of `probe.ACTS`.
    """

    check: str
    grade: Grade
    text: str
    hint: str | None = None
    assumption: str | None = None
    expected: Json = None
    found: Json = None
    run: str | None = None

    def to_json(self) -> dict[str, Json]:
        answer: dict[str, Json] = {
            "check": self.check,
            "verdict": self.grade,
            "text": self.text,
            "hint": self.hint,
        }
        if self.assumption is not None:
            measured = {"expected": self.expected, "found": self.found}
            answer |= {"assumption": self.assumption, **measured}
        if self.run is not None:
            answer["run"] = self.run
        return answer


def ok(check: str, text: str) -> Finding:
    return Finding(check=check, grade=Grade.OK, text=text)


def warn(check: str, text: str, hint: str | None) -> Finding:
    """Runs work, but something will cost time, or fail under some condition."""
    return Finding(check=check, grade=Grade.WARN, text=text, hint=hint)


def fail(check: str, text: str, hint: str | None) -> Finding:
    """A run that depends on it cannot work."""
    return Finding(check=check, grade=Grade.FAIL, text=text, hint=hint)


def counted(findings: Sequence[Finding]) -> dict[Grade, int]:
    """How many findings there are of each grade."""
    return {grade: sum(finding.grade is grade for finding in findings) for grade in Grade}


def few(names: Sequence[str]) -> str:
    """Up to three names, of more the first two and how many there are."""
    if len(names) <= 3:
        return ", ".join(names)
    return f"{', '.join(names[:2])} and {len(names) - 2:,} more"
