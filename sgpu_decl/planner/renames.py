"""Runs and jobs that a file gives another address (`renamed_from`): their history moves along."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from shlex import quote

from sgpu_decl.diagnostics.diagnostic import Diagnostic, Severity
from sgpu_decl.diagnostics.nearest_names import nearest
from sgpu_decl.model.address import Address, Kind
from sgpu_decl.model.attempt import AttemptRef
from sgpu_decl.model.attempt_view import AttemptView
from sgpu_decl.model.desired import Rename
from sgpu_decl.model.state import Attempt, Resource, State
from sgpu_decl.planner.plan_inputs import PlanInputs, PlanRequest

_ENVIRONMENT = Kind.ENVIRONMENT

Moves = Mapping[Address, Address]
"""New addresses, each with the one that is recorded."""


def moves_of(renames: Iterable[Rename], state: State) -> dict[Address, Address]:
    """Return what has to be moved: recorded resources whose new address was never used. A rename
    that was carried out gives nothing."""
    new_names = {item.before: item.address for item in renames}
    if not new_names:
        return {}
    moves = {}
    for before, resource in state.resources.items():
        name = new_names.get(replace(before, key=""))
        if name is None or resource.gone:
            continue
        address = replace(name, key=before.key)
        if not has_history(state.resources.get(address)):
            moves[address] = before
    return moves


def moved(state: State, moves: Moves) -> State:
    """Return the state as it will be once resources, their attempts and their intents are moved."""
    if not moves:
        return state
    new = {before: address for address, before in moves.items()}
    resources = dict(state.resources)
    for address, before in moves.items():
        resource, left = resources[before], resources.get(address)
        numbered = max(resource.numbered, left.numbered if left is not None else 0)
        last = _at(resource.last, address) if resource.last is not None else None
        resources[address] = replace(resource, address=address, last=last, numbered=numbered)
        resources[before] = replace(resource, last=None, gone=True)
    return replace(
        state,
        resources=resources,
        active=tuple(
            _at(item, new[item.ref.address]) if item.ref.address in new else item
            for item in state.active
        ),
        intents=tuple(
            replace(item, address=new.get(item.address, item.address)) for item in state.intents
        ),
    )


def moved_views(
    views: Mapping[AttemptRef, AttemptView], moves: Moves
) -> Mapping[AttemptRef, AttemptView]:
    """Return what was observed, by the new addresses."""
    new = {before: address for address, before in moves.items()}
    if not new.keys() & {ref.address for ref in views}:
        return views
    refs = {ref: AttemptRef(new.get(ref.address, ref.address), ref.number) for ref in views}
    return {refs[ref]: replace(view, ref=refs[ref]) for ref, view in views.items()}


def rename_checks(inputs: PlanInputs, moves: Moves) -> Iterator[Diagnostic]:
    """Find renames that cannot be carried out, and old names that are probably misspelt."""
    renames, state, request = inputs.renames, inputs.state, inputs.request
    of_old_name = {item.before: item for item in renames if item.before.kind is not _ENVIRONMENT}
    if not of_old_name:
        return
    recorded = set()
    for before, resource in state.resources.items():
        name = replace(before, key="")
        recorded.add(name)
        rename = of_old_name.get(name)
        if rename is None or resource.gone:
            continue
        address = replace(rename.address, key=before.key)
        if moves.get(address) == before:
            active = [
                inputs.observed.get(attempt.ref, attempt)
                for attempt in state.active
                if attempt.ref.address == before
            ]
            readers = [reader for ref, reader in inputs.needed.items() if ref.address == before]
            yield from _in_use(rename, address, before, active, readers)
        else:
            yield from _both_recorded(rename, address, before, state, request)
    declared = {replace(run.address, key="") for run in inputs.desired}
    declared |= {job.address for job in inputs.jobs}
    for before, rename in of_old_name.items():
        if before not in recorded and rename.address not in recorded:
            going = {
                address.name
                for address, resource in state.resources.items()
                if address.kind is before.kind
                and not resource.gone
                and request.owns(resource.owner)
                and replace(address, key="") not in declared
            }
            yield from _misspelt(rename, nearest(before.name, going))


def _misspelt(rename: Rename, near: str | None) -> Iterator[Diagnostic]:
    """A name that is not recorded may be right: the target may be a new one."""
    if near is not None:
        yield Diagnostic(
            code="unknown_old_name",
            severity=Severity.WARNING,
            address=str(rename.address),
            summary=f"nothing is recorded under `{rename.before}`, so no history is moved",
            hint=f"did you mean `renamed_from: {near}`?",
            place=rename.place,
        )


def _in_use(
    rename: Rename,
    address: Address,
    before: Address,
    attempts: Sequence[Attempt | AttemptView],
    readers: Sequence[AttemptRef],
) -> Iterator[Diagnostic]:
    active = next((attempt for attempt in attempts if attempt.state.active), None)
    if active is None and not readers:
        return
    ref = active.ref if active is not None else readers[0]
    why = f" and looks at a folder of `{before.label}`" if active is None else ""
    how = f"wait for it with `sgpu wait {quote(str(ref))}`, or cancel it"
    if isinstance(active, AttemptView) and active.unavailable:
        why = f" ({active.unavailable})"
        how = "after it has ended, `sgpu apply` where it was launched records that"
    yield Diagnostic(
        code="active_run",
        severity=Severity.ERROR,
        address=str(address),
        summary=f"`{ref}` is active{why}: `{before.label}` cannot be renamed before it has ended",
        hint=f"{how}; then plan again",
        place=rename.place,
    )


def _both_recorded(
    rename: Rename, address: Address, before: Address, state: State, request: PlanRequest
) -> Iterator[Diagnostic]:
    """Of a run that another file declares under the old name since, nothing has to be said."""
    there = state.resources[address]
    if not there.gone and not request.owns(state.resources[before].owner):
        return
    yield Diagnostic(
        code="move_refused",
        severity=Severity.ERROR,
        address=str(address),
        summary=f"`{before}` cannot become `{address}`: both have a history, and two histories "
        "cannot be one",
        hint="choose a name that was never used, or remove `renamed_from`",
        place=rename.place,
    )


def has_history(resource: Resource | None) -> bool:
    """Whether an address is taken. One that a resource was moved away from is not: its resource is
    gone, and has no last attempt."""
    return resource is not None and (not resource.gone or resource.last is not None)


def _at(attempt: Attempt, address: Address) -> Attempt:
    return replace(
        attempt,
        ref=AttemptRef(address, attempt.ref.number),
        formerly=(*attempt.formerly, attempt.ref.address),
    )
