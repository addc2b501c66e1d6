"""From a planned change to what is launched and what is remembered."""

from collections.abc import Mapping

from sgpu_decl.diagnostics.diagnostic import Diagnostic, Severity
from sgpu_decl.errors import InvalidInput, Locked, SgpuError
from sgpu_decl.model.attempt import AttemptRef
from sgpu_decl.model.launch import LaunchRecord, Provenance
from sgpu_decl.model.plan import Change, Plan
from sgpu_decl.model.run_outputs import outputs_read
from sgpu_decl.model.state import Attempt, Resource


def launch_of(plan: Plan, change: Change) -> LaunchRecord:
    """The launch that a change decides.

    Raises:
        InvalidInput: the change, of a saved plan, lacks what a launch needs.
    """
    launch = change.launch
    if change.attempt is None or launch is None or launch.token is None:
        raise incomplete(change)
    return LaunchRecord(
        ref=AttemptRef(change.address, change.attempt),
        backend=change.backend,
        token=launch.token,
        lineage=plan.lineage,
        owner=launch.owner,
        inputs=launch.inputs,
        wait_for=tuple(ref.number for ref in change.waits_for),
        after=tuple(upstream.ref for upstream in change.after),
        provenance=Provenance(
            reason=str(change.reason),
            commit=plan.git.commit if plan.git else None,
            dirty=plan.git.dirty if plan.git else None,
        ),
    )


def upstreams_of(
    launch: LaunchRecord, known: Mapping[AttemptRef, LaunchRecord]
) -> tuple[LaunchRecord, ...]:
    """The launches of other runs that a launch looks at: it comes after them, or reads their
    output."""
    refs = dict.fromkeys((*launch.after, *outputs_read(launch.inputs.spec)))
    return tuple(known[ref] for ref in refs if ref in known)


def resource_of(change: Change, *, last: Attempt | None) -> Resource:
    if change.launch is None:
        raise incomplete(change)
    return Resource(
        address=change.address,
        backend=change.backend,
        owner=change.launch.owner,
        spec=change.launch.inputs.spec,
        last=last,
    )


def unrecorded(error: SgpuError) -> Diagnostic:
    """The warning that something was done and could not be recorded; it is not undone."""
    return Diagnostic(
        code="unrecorded",
        severity=Severity.WARNING,
        summary=error.message,
        hint="; ".join(filter(None, (error.hint, "the next `sgpu apply` records what is missing"))),
    )


def never_recorded(attempt: Attempt, place: str | None, error: SgpuError) -> Locked:
    """The error for a launch whose intent another process may have dropped, with the lock that it
    took over: no later apply is sure to find it. `place` says where it was launched."""
    where = f" {place}" if place else ""
    return Locked(
        f"`{attempt.ref}` was launched{where}, and is not recorded: {error.message}",
        hint="look with `sgpu plan` whether it is known; if it is not, cancel it where it runs",
        code=error.code,
    )


def incomplete(change: Change) -> InvalidInput:
    """The error for a change of a saved plan that somebody edited."""
    return InvalidInput(
        f"the plan lacks what a change of `{change.address}` needs", hint="plan again"
    )
