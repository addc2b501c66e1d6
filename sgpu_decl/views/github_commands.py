"""Findings as workflow commands of GitHub Actions, which shows each one at its line of the change.

The format is that of https://docs.github.com/en/actions/reference/workflows-and-actions/workflow-commands,
and what is escaped in it that of `escapeData` and `escapeProperty` in
https://github.com/actions/toolkit/blob/main/packages/core/src/command.ts.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from sgpu_decl.diagnostics.diagnostic import Diagnostic, Severity
from sgpu_decl.views.terminal import count, escape

_COMMANDS: Mapping[Severity, tuple[str, str]] = MappingProxyType(
    {
        Severity.ERROR: ("error", "more error"),
        Severity.WARNING: ("warning", "more warning"),
        Severity.INFO: ("notice", "more notice"),
    }
)
_SHOWN = 10  # of each kind; GitHub shows no more of them for a step


def render(findings: Sequence[Diagnostic], *, path: Callable[[str], str]) -> str:
    """Return one command for each finding, errors first; beyond ten of a kind, their number.

    Args:
        path: gives the path of a file in the repository.
    """
    lines, more = [], []
    for severity, (command, noun) in _COMMANDS.items():
        of_kind = [finding for finding in findings if finding.severity is severity]
        lines += [_command(command, finding, path) for finding in of_kind[:_SHOWN]]
        if len(of_kind) > _SHOWN:
            more.append(count(len(of_kind) - _SHOWN, noun))
    if more:
        lines.append(f"{', '.join(more)} not shown")
    return "".join(f"{line}\n" for line in lines)


def check_finding(check: Diagnostic) -> Diagnostic:
    """A check of a plan as a finding that names its run."""
    about = f"`{check.address}`: " if check.address else ""
    return replace(check, summary=f"{about}{check.summary}")


def _command(command: str, finding: Diagnostic, path: Callable[[str], str]) -> str:
    hint = f"%0Ahint: {_data(finding.hint)}" if finding.hint else ""
    properties = ",".join(f"{name}={_property(text)}" for name, text in _properties(finding, path))
    return f"::{command} {properties}::{_data(finding.summary)}{hint}"


def _properties(finding: Diagnostic, path: Callable[[str], str]) -> Iterator[tuple[str, str]]:
    place = finding.place
    if place is not None and not place.is_option:
        yield "file", path(place.file)
        yield "line", str(place.line)
        yield "col", str(place.column)
    yield "title", finding.code


def _data(text: str) -> str:
    return escape(text).replace("%", "%25")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
