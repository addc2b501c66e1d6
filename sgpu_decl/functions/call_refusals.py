"""All errors of a call as one exception."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

from sgpu_decl.config.call_config import respelt
from sgpu_decl.diagnostics.diagnostic import Diagnostic, Severity
from sgpu_decl.errors import InvalidInput
from sgpu_decl.functions.origin import Origin
from sgpu_decl.model.plan import Plan

_OPTION = re.compile(r" \(`--set [^`]*`\)")  # a call has no command line


def refuse(name: str, findings: Sequence[Diagnostic]) -> InvalidInput:
    """The error of a call with these findings: a single one is the message, several are listed."""
    errors = tuple(finding for finding in findings if finding.severity is Severity.ERROR)
    if len(errors) > 1:
        lines = "".join(
            f"\n  {_line(error)}" + (f"; {error.hint}" if error.hint else "") for error in errors
        )
        message = f"{len(errors)} things are wrong{lines}"
    else:
        message = _line(errors[0])
    return InvalidInput(
        f"`{name}` cannot be called: {message}",
        hint=errors[0].hint if len(errors) == 1 else None,
        diagnostics=errors,
    )


def refuse_plan(plan: Plan, origin: Origin, parameters: Mapping[str, str]) -> InvalidInput | None:
    """The error that a plan's checks are, or None where it can be applied.

    Args:
        origin: of the function. Findings at its place use the words of the decorator.
        parameters: the decorator's parameters, by the field that each gives.
    """
    findings = [
        respelt(replace(one, hint=one.hint and _OPTION.sub("", one.hint)), origin.place, parameters)
        for one in plan.checks
        if one.severity is Severity.ERROR
    ]
    return refuse(origin.name, findings) if findings else None


def _line(finding: Diagnostic) -> str:
    return f"{finding.summary} ({finding.place})" if finding.place else finding.summary
