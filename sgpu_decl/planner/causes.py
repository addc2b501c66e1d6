"""Who causes each change of a plan: this branch, or what the base would do as well."""

from collections.abc import Collection
from dataclasses import replace

from sgpu_decl.model.address import Address, Kind
from sgpu_decl.model.launch import LaunchInputs
from sgpu_decl.model.plan import Action, Cause, Change, FieldChange, Plan, Reason
from sgpu_decl.planner.planner import summary_of

# What happened to a run or a job, although nobody changed a file. A rerun that the command or the
# file asks for (`until: always`) is none: it is what was wanted.
_DRIFTS = frozenset(
    {
        Reason.ALREADY_RUNNING,
        Reason.PREVIOUS_LOST,
        Reason.PREVIOUS_FAILED,
        Reason.LIVE_DRIFTED,
        Reason.CANCELLED_BY_USER,
    }
)


def with_causes(plan: Plan, base: Plan, *, selected: Collection[Address] | None) -> Plan:
    """Return the plan with the cause of each change.

    Args:
        base: the plan of the same state for the files at the base.
        selected: what is planned; None for all.

    Returns:
        The plan. What only the base would change stands in it as withdrawn, changes nothing and
        is not counted.
    """
    theirs = {change.address: change for change in base.changes}
    changes = [
        replace(change, cause=_cause(change, theirs.get(change.address))) for change in plan.changes
    ]
    here = {change.address for change in plan.changes}
    here |= {change.moved_from for change in plan.changes if change.moved_from is not None}
    changes += [
        _withdrawn(change)
        for change in base.changes
        if change.address not in here
        and not change.idle
        and (selected is None or change.address in selected)
    ]
    ordered = tuple(sorted(changes, key=lambda change: str(change.address)))
    return replace(plan, changes=ordered, summary=summary_of(ordered))


def all_caused_here(plan: Plan) -> Plan:
    """Return the plan with this branch as the cause of each change, where the base says nothing."""
    changes = tuple(replace(change, cause=_cause(change, None)) for change in plan.changes)
    return replace(plan, changes=changes)


def _cause(change: Change, other: Change | None) -> Cause | None:
    would = other is not None and not other.idle
    if change.idle:
        return Cause.WITHDRAWN if would else None
    if other is None or _effect(change) != _effect(other):
        return Cause.CHANGE
    return Cause.DRIFT if change.reason in _DRIFTS else Cause.PENDING


def _effect(change: Change) -> object:
    """What a change does: equal effects, equal outcome. By the same state and observations, the
    fields of a launch differ only where its inputs do."""
    launch = change.launch
    environment = change.environment if change.kind is Kind.ENVIRONMENT else None
    return (
        change.action,
        change.moved_from,
        change.backend,
        change.after,
        None if launch is None else (_inputs(launch.inputs), launch.stop, launch.wait_for),
        None if environment is None else environment.digest,
        None if launch is not None else [_sides(field) for field in change.fields],
    )


def _inputs(inputs: LaunchInputs) -> LaunchInputs:
    """What decides a launch, but for files that do not count, and for what this machine is found to
    have: an interpreter in the folder of the project is in no commit."""
    if inputs.counted is not None:
        inputs = replace(inputs, code_digest=None, fingerprint="")
    return replace(inputs, packages_digest=None)


def _sides(field: FieldChange) -> tuple[object, ...]:
    return field.path, field.before, field.after, field.added, field.removed


def _withdrawn(change: Change) -> Change:
    """What the base would do and this branch does not."""
    return Change(
        address=change.address,
        kind=change.kind,
        backend=change.backend,
        action=Action.NO_OP,
        reason=Reason.REMOVED_FROM_CONFIG,
        prior=change.prior,
        cause=Cause.WITHDRAWN,
    )
