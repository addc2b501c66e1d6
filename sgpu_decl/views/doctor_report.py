"""Findings as a text that can be shown to anybody: no names, hosts, paths or ids are in it.

It is made of words of sgpu alone: names of its checks, ids of its assumptions, numbers, and those
texts that `assumptions.yaml` itself has. No text of a workspace is in it.
"""

import platform
import re
from collections.abc import Sequence

from sgpu_decl import __version__
from sgpu_decl.diagnostics.diagnostic import Severity
from sgpu_decl.model.assumptions import assumptions
from sgpu_decl.model.doctor_finding import Finding, counted
from sgpu_decl.model.jsonable import Json

_CHECK = re.compile(r"[a-z]+([- ][a-z0-9]+)*")  # names of checks stand in the code


def report_text(findings: Sequence[Finding]) -> str:
    """The report."""
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
