"""What stands in the way of a call, as one exception: everything that is wrong, once."""

import re
from collections.abc import Mapping, Sequence

from sgpu_decl.config.call_config import respelt
from sgpu_decl.diagnostics.diagnostic import Diagnostic, Severity
from sgpu_decl.diagnostics.place import Place
from sgpu_decl.errors import InvalidInput
from sgpu_decl.model.plan import Check, Plan

__all__ = ["refuse", "refuse_plan"]

_OPTION = re.compile(r" \(`--set [^`]*`\)")  # of a command line that is not there


def refuse(name: str, findings: Sequence[Diagnostic]) -> InvalidInput:
    """The error that a call with these findings is: one says itself, several are listed."""
    wrong = tuple(finding for finding in findings if finding.severity is Severity.ERROR)
    return _error(name, [_words(item.summary, item.place, item.hint) for item in wrong], wrong)


def refuse_plan(
    plan: Plan, *, name: str, place: Place, spelled: Mapping[str, str]
) -> InvalidInput | None:
    """The error that a plan's checks are, or None where it can be applied.

    Args:
        place: where the decorator stands: what is about it is told in its own words.
        spelled: the decorator's parameters, by the field that each gives.
    """
    found = [_diagnostic(check) for check in plan.checks if check.severity is Severity.ERROR]
    return refuse(name, [respelt(item, place, spelled) for item in found]) if found else None


def _error(name: str, lines: list[str], found: tuple[Diagnostic, ...]) -> InvalidInput:
    first = found[0]
    where = f" ({first.place})" if first.place else ""
    if len(found) == 1:
        return InvalidInput(
            f"`{name}` cannot be called: {first.summary}{where}",
            hint=first.hint,
            diagnostics=found,
        )
    listed = "\n".join(f"  {line}" for line in lines)
    return InvalidInput(
        f"`{name}` cannot be called: {len(found)} things are wrong\n{listed}", diagnostics=found
    )


def _words(summary: str, place: object, hint: str | None) -> str:
    where = f" ({place})" if place else ""
    return f"{summary}{where}" + (f"; {hint}" if hint else "")


def _diagnostic(check: Check) -> Diagnostic:
    return Diagnostic(
        code=check.id,
        severity=check.severity,
        summary=check.summary,
        place=check.place,
        hint=_OPTION.sub("", check.hint) if check.hint else None,
    )
