"""What `sgpu doctor` found, for people and for programs."""

from collections.abc import Sequence

from sgpu_decl.diagnostics.diagnostic import Severity
from sgpu_decl.model.doctor_finding import Finding, counted
from sgpu_decl.model.jsonable import Json
from sgpu_decl.model.probe import ProbeCost
from sgpu_decl.views.terminal import Colour, count, escape, paint

_COLOURS = {
    Severity.INFO: Colour.GREEN, Severity.WARNING: Colour.YELLOW, Severity.ERROR: Colour.RED,
}  # fmt: skip
_INDENT = " " * 6
_WIDTH = 14


def finding_text(finding: Finding, *, colour: bool) -> str:
    """The line of a finding, and its hint on a line of its own."""
    verdict = paint(f"{finding.verdict:<4}", _COLOURS[finding.severity], on=colour)
    line = f"{verdict}  {escape(finding.code):<{_WIDTH}}  {escape(finding.summary)}"
    if finding.assumption is not None:
        line += escape(f" (expected {_value(finding.expected)}, found {_value(finding.found)})")
    if finding.hint is None:
        return line
    return f"{line}\n{_INDENT}{'':<{_WIDTH}}  {escape(f'hint: {finding.hint}')}"


def _value(value: Json) -> str:
    if isinstance(value, list):
        return ", ".join(map(str, value)) or "nothing"
    if value is None:
        return "nothing"
    return str(value).lower() if isinstance(value, bool) else str(value)


def findings_summary(findings: Sequence[Finding]) -> str:
    """`14 checks: 12 ok, 1 warn, 1 fail`; verdicts without a finding are left out."""
    numbers = [f"{number} {verdict}" for verdict, number in counted(findings).items() if number]
    return f"{count(len(findings), 'check')}: {', '.join(numbers) or 'none'}"


def probe_cost_text(cost: ProbeCost) -> str:
    """`the probe launches 4 runs: about 6 minutes of an A10 GPU, 40 at most`."""
    return (
        f"the probe launches {count(cost.runs, 'run')}, which use about {cost.usual:.0f} minutes "
        f"of {cost.gpu} GPUs, and {cost.worst:.0f} at most; prices are not known here"
    )


def findings_json(findings: Sequence[Finding]) -> dict[str, Json]:
    return {
        "findings": [finding.to_json() for finding in findings],
        "summary": {**counted(findings)},
    }
