"""What a check of `sgpu doctor` found."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from sgpu_decl.diagnostics.diagnostic import Diagnostic, Severity
from sgpu_decl.frozen_dataclass import dataclass
from sgpu_decl.model.jsonable import Json

VERDICTS: Mapping[Severity, str] = MappingProxyType(
    {Severity.INFO: "ok", Severity.WARNING: "warn", Severity.ERROR: "fail"}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding(Diagnostic):
    """One line of the answer: a finding whose code is the name of the check, such as `interpreter`,
    with one sentence as its summary, and what was measured.

    Attributes:
        assumption: the id in `model/assumptions.yaml`, where the check measured one of them;
            `expected` is what it says, `found` the measured value.
        run: the run of a probe that it comes from, one of `probe.ACTS`.
    """

    assumption: str | None = None
    expected: Json = None
    found: Json = None
    run: str | None = None

    @property
    def verdict(self) -> str:
        return VERDICTS[self.severity]

    def to_json(self) -> dict[str, Any]:
        answer: dict[str, Any] = {
            "check": self.code,
            "verdict": self.verdict,
            "text": self.summary,
            "hint": self.hint,
        }
        if self.assumption is not None:
            measured = {"expected": self.expected, "found": self.found}
            answer |= {"assumption": self.assumption, **measured}
        return answer if self.run is None else {**answer, "run": self.run}


def ok(check: str, text: str, *, unless: str | None = None) -> Finding:
    """All is well; it is a warning if there is something to do."""
    severity = Severity.INFO if unless is None else Severity.WARNING
    return Finding(code=check, severity=severity, summary=text, hint=unless)


def warn(check: str, text: str, hint: str | None) -> Finding:
    """Runs work, but something will cost time, or fail under some condition."""
    return Finding(code=check, severity=Severity.WARNING, summary=text, hint=hint)


def fail(check: str, text: str, hint: str | None) -> Finding:
    """A run that depends on it cannot work."""
    return Finding(code=check, summary=text, hint=hint)


def counted(findings: Sequence[Finding]) -> dict[str, int]:
    """How many findings there are of each verdict."""
    verdicts = [finding.verdict for finding in findings]
    return {verdict: verdicts.count(verdict) for verdict in VERDICTS.values()}


def few(names: Sequence[str]) -> str:
    """Up to three names, of more the first two and how many there are."""
    if len(names) <= 3:
        return ", ".join(names)
    return f"{', '.join(names[:2])} and {len(names) - 2:,} more"
