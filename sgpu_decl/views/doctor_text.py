"""What `sgpu doctor` found, for people, for programs, and as a report for anybody."""

import platform
import re
from collections.abc import Sequence

from sgpu_decl import __version__
from sgpu_decl.diagnostics.diagnostic import Severity
from sgpu_decl.model.assumptions import assumptions
from sgpu_decl.model.doctor_finding import Finding, counted
from sgpu_decl.model.jsonable import Json
from sgpu_decl.model.probe import ProbeCost
from sgpu_decl.views.terminal import Colour, count, escape, paint

_COLOURS = {
    Severity.INFO: Colour.GREEN, Severity.WARNING: Colour.YELLOW, Severity.ERROR: Colour.RED,
}  # fmt: skip
_INDENT = " " * 6
_WIDTH = 14
_CHECK = re.compile(r"[a-z]+([- ][a-z0-9]+)*")  # names of checks stand in the code


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


def report_text(findings: Sequence[Finding]) -> str:
    """Findings without names, hosts, paths and ids. It is made of words of sgpu alone: names of its
    checks, ids of its assumptions, numbers, and those texts that `assumptions.yaml` itself has."""
    counts = ", ".join(f"{number} {verdict}" for verdict, number in counted(findings).items())
    head = (
        f"sgpu {__version__}, Python {platform.python_version()}, {platform.system()}\n"
        f"{len(findings)} checks: {counts}\n"
    )
    lines = sorted(findings, key=lambda finding: list(Severity).index(finding.severity))
    return head + "".join(f"{_line(item)}\n" for item in lines)


def _line(finding: Finding) -> str:
    assumption = assumptions().get(finding.assumption or "")
    if assumption is None:
        names = _CHECK.fullmatch(finding.code)
        return f"{finding.verdict:<4}  {finding.code if names else 'another check'}"
    vocabulary = _texts(assumption.expected) | set(assumption.known)
    expected, shown = _plain(assumption.expected), _shown(finding.found, vocabulary)
    differs = "" if expected == shown else ", differs"
    return f"{finding.verdict:<4}  {assumption.id}: expected {expected}, found {shown}{differs}"


def _texts(value: object) -> set[str]:
    if isinstance(value, tuple):
        return set(value)
    return {value} if isinstance(value, str) else set()


def _plain(value: object) -> str:
    if isinstance(value, tuple):
        return " ".join(sorted(value)) or "nothing"
    return str(value).lower() if isinstance(value, bool) else str(value)


def _shown(value: Json, vocabulary: set[str]) -> str:
    if isinstance(value, bool | int | float):
        return _plain(value)
    if isinstance(value, list):
        listed_words = sorted(str(item) for item in value if item in vocabulary)
        others = len(value) - len(listed_words)
        return " ".join([*listed_words, *([f"and {others} more"] if others else [])]) or "nothing"
    if value is None:
        return "nothing"
    text = str(value)
    return text if text in vocabulary or re.fullmatch(r"\d+(\.\d+)*", text) else "another text"
