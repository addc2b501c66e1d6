"""What `plan`, `apply` and `destroy` share: the errors and the failures that a plan stands for."""

from typing import TYPE_CHECKING

from sgpu_decl.diagnostics.diagnostic import Diagnostic, Severity
from sgpu_decl.errors import RunFailed, SgpuError
from sgpu_decl.model.plan import Reason

if TYPE_CHECKING:
    from sgpu_decl.model.plan import Plan

__all__ = ["failed_runs_error", "plan_error"]


def plan_error(plan: "Plan") -> SgpuError | None:
    """The error of a plan with error checks, which are its diagnostics, or `None`."""
    errors = [check for check in plan.checks if check.severity is Severity.ERROR]
    if not errors:
        return None
    findings = tuple(
        Diagnostic(code=error.id, summary=error.summary, place=error.place, hint=error.hint)
        for error in errors
    )
    cause = f"{len(errors)} errors stand in the way"
    hint: str | None = "mend what they name, then plan again"
    if len(errors) == 1:
        cause, hint = errors[0].summary.partition("\n")[0], errors[0].hint
    return SgpuError(
        f"this plan cannot be applied: {cause}",
        hint=hint,
        code="plan_has_errors",
        diagnostics=findings,
    )


def failed_runs_error(plan: "Plan") -> SgpuError | None:
    """The error of an apply that leaves a failed run as it is, or `None`."""
    names = [
        f"`{change.address.label}#{change.prior.attempt}`"
        for change in plan.changes
        if change.reason is Reason.FAILED_NOT_RETRIED and change.prior is not None
    ]
    if not names:
        return None
    return RunFailed(
        f"not launched again, because the last attempt failed: {', '.join(names)}",
        hint="`--retry-failed` launches failed runs again",
    )
