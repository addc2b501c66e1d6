"""From a planned change to what is launched and what is remembered."""

from datetime import datetime

from sgpu_decl.backends.base import Launching
from sgpu_decl.errors import InvalidInput
from sgpu_decl.model.attempt import AttemptRef, AttemptState
from sgpu_decl.model.call import Call
from sgpu_decl.model.plan import Change, Launch, Plan
from sgpu_decl.model.state import Attempt, Intent, Resource

__all__ = ["attempt_of", "launching_of", "recorded_resource", "resource_of"]


def launching_of(plan: Plan, change: Change, call: Call | None = None) -> Launching:
    launch, token = _required(change)
    return Launching(
        ref=_ref(change),
        token=token,
        lineage=plan.lineage,
        spec=launch.spec,
        owner=launch.owner,
        code_digest=launch.code_digest,
        environment_digest=launch.environment_digest,
        pool=launch.pool,
        wait_for=tuple(ref.number for ref in change.waits_for),
        call=call,
    )


def attempt_of(change: Change, *, plan_id: str, now: datetime) -> Attempt:
    launch, token = _required(change)
    return Attempt(
        ref=_ref(change),
        token=token,
        backend=change.backend,
        state=AttemptState.QUEUED,
        spec=launch.spec,
        fingerprint=launch.fingerprint,
        code_digest=launch.code_digest,
        environment_digest=launch.environment_digest,
        packages_digest=launch.packages_digest,
        pool=launch.pool,
        created_at=now,
        plan_id=plan_id,
    )


def resource_of(change: Change, *, last: Attempt | None) -> Resource:
    if change.launch is None:
        raise _incomplete(f"the plan says nothing of what to record for `{change.address}`")
    return Resource(
        address=change.address,
        backend=change.backend,
        owner=change.launch.owner,
        spec=change.launch.spec,
        last=last,
    )


def recorded_resource(intent: Intent, attempt: Attempt, known: Resource | None) -> Resource:
    """The resource that an intent creates once it is known to have happened."""
    return Resource(
        address=intent.address,
        backend=attempt.backend,
        owner=known.owner if known else intent.owner,
        spec=attempt.spec,
        last=attempt,
    )


def _ref(change: Change) -> AttemptRef:
    if change.attempt is None:
        raise _incomplete(f"the plan gives `{change.address}` no attempt number")
    return AttemptRef(change.address, change.attempt)


def _required(change: Change) -> tuple[Launch, str]:
    if change.launch is None or change.launch.token is None:
        raise _incomplete(f"the plan lacks what a launch of `{change.address}` needs")
    return change.launch, change.launch.token


def _incomplete(what: str) -> InvalidInput:
    """Of a saved plan that somebody edited: what sgpu writes is whole."""
    return InvalidInput(what, hint="plan again")
