"""The errors with which `plan`, `apply` and `destroy` end because of what is in the plan."""

from sgpu_decl.diagnostics.diagnostic import Severity
from sgpu_decl.errors import RunFailed, SgpuError
from sgpu_decl.model.plan import Plan, Reason


def plan_error(plan: Plan) -> SgpuError | None:
    """The error of a plan that has error checks, with these as its diagnostics; else `None`."""
    errors = tuple(check for check in plan.checks if check.severity is Severity.ERROR)
    if not errors:
        return None
    cause = f"it has {len(errors)} errors"
    hint: str | None = "fix them, then plan again"
    if len(errors) == 1:
        cause, hint = errors[0].summary.partition("\n")[0], errors[0].hint
    return SgpuError(
        f"this plan cannot be applied: {cause}",
        hint=hint,
        code="plan_has_errors",
        diagnostics=errors,
    )


def failed_runs_error(plan: Plan) -> SgpuError | None:
    """The error of an apply that does not relaunch a run that failed, or does not launch one that
    comes after it; else `None`."""
    failed = [
        (change.address, change.prior)
        for change in plan.changes
        if change.reason is Reason.FAILED_NOT_RETRIED and change.prior is not None
    ]
    if not failed:
        return _held_runs_error(plan)
    attempts = ", ".join(f"`{address.label}#{prior.attempt}`" for address, prior in failed)
    names = sorted({address.name for address, _ in failed})
    how = "could not start" if all(prior.not_started for _, prior in failed) else "failed"
    only = "" if plan.complete else "".join(f" --select {name}" for name in names)
    return RunFailed(
        f"not launched again, because the last attempt {how}: {attempts}",
        hint=f"`sgpu apply --retry-failed{only}` launches failed runs again",
    )


def _held_runs_error(plan: Plan) -> SgpuError | None:
    held = {
        change.address.name for change in plan.changes if change.reason is Reason.UPSTREAM_FAILED
    }
    if not held:
        return None
    names = ", ".join(f"`{name}`" for name in sorted(held))
    hints = {check.hint for check in plan.checks if check.code == "upstream_failed"}
    return RunFailed(
        f"not launched, because a run that comes before has not succeeded: {names}",
        hint=hints.pop() if len(hints) == 1 else "the warnings of the plan say what to do",
    )
