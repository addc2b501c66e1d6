"""What stands in the way of a call, as one exception: everything that is wrong, once."""

from collections.abc import Sequence

from sgpu_decl.diagnostics.diagnostic import Diagnostic, Severity
from sgpu_decl.errors import InvalidInput
from sgpu_decl.model.plan import Check, Plan

__all__ = ["refuse", "refuse_plan"]


def refuse(name: str, findings: Sequence[Diagnostic]) -> InvalidInput:
    """The error that a call with these findings is: one says itself, several are listed."""
    wrong = tuple(it for it in findings if it.severity is Severity.ERROR)
    return _error(name, [_words(it.summary, it.place, it.hint) for it in wrong], wrong)


def refuse_plan(name: str, plan: Plan) -> InvalidInput | None:
    """The error that a plan's checks are, or None where it can be applied."""
    wrong = [it for it in plan.checks if it.severity is Severity.ERROR]
    if not wrong:
        return None
    lines = [_words(it.summary, it.place, it.hint) for it in wrong]
    return _error(name, lines, tuple(_diagnostic(it) for it in wrong))


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
        hint=check.hint,
    )
