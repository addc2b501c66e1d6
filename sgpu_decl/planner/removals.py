"""What becomes of a run that its file no longer lists or lets go, or that is to be destroyed."""

from dataclasses import replace
from datetime import datetime

from sgpu_decl.diagnostics.diagnostic import Diagnostic, Severity
from sgpu_decl.model.address import Address, Kind
from sgpu_decl.model.launch import LaunchInputs
from sgpu_decl.model.plan import Action, Change, PlannedLaunch, Reason
from sgpu_decl.model.state import Resource
from sgpu_decl.planner.attempt_checks import work_lost
from sgpu_decl.planner.fingerprint import fingerprint
from sgpu_decl.planner.last_known import CurrentAttempts, prior_of


def removed(
    resource: Resource, attempts: CurrentAttempts, now: datetime
) -> tuple[Change, tuple[Diagnostic, ...]]:
    """What was taken out of its file: a run is forgotten when inactive, destroyed when active; a
    job goes on by itself, so it is destroyed."""
    if not attempts.active and resource.address.kind is not Kind.JOB:
        return _ending(resource, attempts, Action.FORGET), ()
    return destroyed(resource, attempts, now)


def destroyed(
    resource: Resource, attempts: CurrentAttempts, now: datetime
) -> tuple[Change, tuple[Diagnostic, ...]]:
    """The end of a run: cancelled if it is active, and marked as gone. History stays. That of a
    job: deleted where it is kept, with the history that is kept there."""
    checks = work_lost(attempts.active, attempts, now)
    if _prevented(resource):
        refusal = Diagnostic(
            code="prevent_destroy",
            severity=Severity.ERROR,
            address=str(resource.address),
            summary="destroying it is forbidden by `lifecycle.prevent_destroy`",
            hint="apply it once without `prevent_destroy`, or leave it out with `--exclude`",
        )
        checks = (*checks, refusal)
    return _ending(resource, attempts, Action.DESTROY), checks


def released(
    resource: Resource,
    attempts: CurrentAttempts,
    now: datetime,  # noqa: ARG001  as of the other ways to end
) -> tuple[Change, tuple[Diagnostic, ...]]:
    """What the project lets go: it is forgotten, and nothing is cancelled or deleted."""
    change = _ending(resource, attempts, Action.FORGET)
    assert change.launch is not None  # noqa: S101  every ending has one
    return replace(change, destructive=False, launch=replace(change.launch, stop=())), ()


def managed_elsewhere(job: Address, manager: str) -> Diagnostic:
    """That a job which the file lets go or destroys belongs to somebody else now."""
    return Diagnostic(
        code="managed_by_bundle",
        severity=Severity.WARNING,
        address=str(job),
        summary=f"the job is managed by {manager}: it is forgotten here, and not deleted there",
        hint="delete it there if nobody needs it",
    )


def _ending(resource: Resource, attempts: CurrentAttempts, action: Action) -> Change:
    last, current = attempts.last, attempts.current
    first = LaunchInputs(spec=resource.spec, fingerprint=fingerprint(resource.spec, None))
    inputs = last.inputs if last else first
    return Change(
        address=resource.address,
        kind=resource.address.kind,
        backend=resource.backend,
        action=action,
        reason=Reason.REMOVED_FROM_CONFIG,
        destructive=bool(attempts.active) or resource.address.kind is Kind.JOB,
        prior=prior_of(current) if current else None,
        launch=PlannedLaunch(
            owner=resource.owner,
            inputs=replace(inputs, spec=resource.spec),
            stop=tuple(attempt.ref.number for attempt in attempts.active),
        ),
    )


def _prevented(resource: Resource) -> bool:
    """By the config that was applied last: the file may not list the run any more."""
    lifecycle = resource.spec.fields.get("lifecycle")
    return isinstance(lifecycle, dict) and lifecycle.get("prevent_destroy") is True
