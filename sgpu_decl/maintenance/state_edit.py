"""`sgpu state mv` and `rm`: changes to the record alone, refused while a run is active."""

import shlex
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from sgpu_decl.applying.moves import move_recorded
from sgpu_decl.applying.recovery import refresh
from sgpu_decl.diagnostics.nearest_names import nearest
from sgpu_decl.errors import ActiveRun, NotFound, SgpuError
from sgpu_decl.model.address import Address, Kind
from sgpu_decl.model.attempt import AttemptRef, AttemptState
from sgpu_decl.model.selectors import (
    is_whole_name,
    match_addresses,
    names_any,
    offered,
    resource_named,
)
from sgpu_decl.model.state import Resource
from sgpu_decl.planner.needs import needed_by_active
from sgpu_decl.planner.renames import has_history
from sgpu_decl.planning.live_state import refs_in_launch
from sgpu_decl.planning.project import Project
from sgpu_decl.runs.project_runs import ProjectRuns


def move(project: Project, source: str, destination: str) -> tuple[Address, Address]:
    """Rename a resource, or all runs of a matrix by its name: their history and their folders
    follow. Returns the old and the new address.

    Args:
        destination: an address, or a bare name, which keeps the kind of `source`.

    Raises:
        NotFound: nothing is recorded at `source`.
        ActiveRun: it is active, or an active run looks at its folders.
        SgpuError: `destination` has a history of its own.
    """
    resources = project.state().resources
    found = _sources(resources, source, destination)
    moves = _moves(source, found, _parse(destination, found[0]))
    for old, new in moves.items():
        _refuse_taken(resources, old, new)
    with project.writing("state mv") as writer:
        _refuse_active(project, moves, "its folders cannot be moved")
        refresh(writer, project.backend)
        _refuse_needed(project, moves)
        for old, new in moves.items():
            move_recorded(writer, project.backend, old, new)
    if len(moves) > 1:
        return replace(old, key=""), replace(new, key="")
    return old, new


def remove(project: Project, text: str) -> Address:
    """Forget a resource; its attempts stay in history.

    Raises:
        NotFound: nothing is recorded there.
        ActiveRun: it is active, as far as this machine can ask.
    """
    old = resource_named(project.believed().resources, text).address
    with project.writing("state rm") as writer:
        _refuse_active(project, (old,), "without its record nothing would stop it", seen=True)
        refresh(writer, project.backend)
        writer.remove(old)
    return old


def _sources(resources: Mapping[Address, Resource], source: str, destination: str) -> list[Address]:
    """What has to be moved; where nothing has the name, the error says which names there are."""
    try:
        found = sorted(match_addresses([source], resources))
    except NotFound:
        kind = next((kind for kind in Kind if source.startswith(f"{kind}.")), Kind.RUN)
        recorded = _recorded(resources, kind)
        hint = offered(recorded, kind)
        if names_any(destination, recorded):
            words = f"sgpu state mv {shlex.quote(destination)} {shlex.quote(source)}"
            hint = f"`{destination}` is recorded, and the recorded name comes first: `{words}`"
        elif near := nearest(source.removeprefix(f"{kind}."), [one.name for one in recorded]):
            hint = f"did you mean `{near}`? {hint[:1].upper()}{hint[1:]}"
        raise NotFound(f"nothing is recorded under `{source}`", hint=hint) from None
    found = [one for one in found if one.kind is Kind.RUN] or found
    found = [one for one in found if has_history(resources[one])] or found[:1]
    if len({(one.kind, one.name) for one in found}) > 1:
        raise SgpuError(
            f"`{source}` matches several resources", hint="give one address", code="ambiguous"
        )
    return found


def _moves(source: str, found: Sequence[Address], new: Address) -> dict[Address, Address]:
    """Where each resource goes: the runs of a matrix keep their keys, unless one is named by its
    whole address."""
    if len(found) == 1 and (new.key or is_whole_name(source, found[0])):
        return {found[0]: new}
    if new.key:
        raise SgpuError(
            f"`{source}` has {len(found):,} runs, which cannot all become `{new}`",
            hint=f"leave the key out, which moves all of them; or name one, such as "
            f"{shlex.quote(str(found[0]))}",
            code="move_refused",
        )
    return {old: replace(new, key=old.key) for old in found}


def _refuse_taken(resources: Mapping[Address, Resource], old: Address, new: Address) -> None:
    if old == new:
        raise SgpuError(
            f"`{old}` has that address already", hint="name another one", code="move_refused"
        )
    if new.kind is not old.kind:
        return  # the store refuses it
    if has_history(taken := resources.get(new)):
        gone = ", though it is gone" if taken is not None and taken.gone else ""
        raise SgpuError(
            f"`{new}` has a history of its own{gone}, and two histories cannot be one",
            hint="choose a name that was never used; "
            + offered(_recorded(resources, new.kind), new.kind),
            code="move_refused",
        )
    cells = [one for one in _recorded(resources, new.kind) if one.name == new.name and one.key]
    if cells and not new.key and new.name != old.name:
        raise SgpuError(
            f"`{new}` is a matrix: `{old}` can only become one of its runs",
            hint="give the whole address of a run of it that was never launched, written like "
            f"{shlex.quote(str(min(cells)))}",
            code="move_refused",
        )


def _recorded(resources: Mapping[Address, Resource], kind: Kind) -> list[Address]:
    return [
        one for one, resource in resources.items() if one.kind is kind and has_history(resource)
    ]


def _parse(text: str, like: Address) -> Address:
    for candidate in (text, f"{like.kind}.{text}"):
        try:
            return Address.parse(candidate)
        except ValueError:
            continue
    raise SgpuError(
        f"`{text}` is no address", hint=f"give one such as `{like.kind}.train`", code="bad_address"
    )


def _refuse_active(
    project: Project, addresses: Collection[Address], why: str, *, seen: bool = False
) -> None:
    """`seen` leaves those out that cannot be asked now: their place may be gone for good. Also
    those whose launch was begun, and nobody here can say whether they were started."""
    runs, state = ProjectRuns(project), project.believed()
    in_launch = refs_in_launch(state)
    for attempt in state.active:
        if attempt.ref.address not in addresses:
            continue
        view = runs.status(attempt.ref)
        if not view.state.active:
            continue
        if seen and view.state is AttemptState.STAGING and attempt.ref in in_launch:
            continue
        if seen and view.unavailable is not None:
            continue
        raise ActiveRun(
            f"`{attempt.ref}` is active: {why}",
            hint=_wait_for(attempt.ref),
        )


def _refuse_needed(project: Project, addresses: Collection[Address]) -> None:
    recorded = project.states.read_all()
    for needed, active in needed_by_active(recorded[1] if recorded else ()).items():
        if needed.address in addresses:
            raise ActiveRun(
                f"`{active}` is active and looks at the folder of `{needed}`: it cannot be moved",
                hint=_wait_for(active),
            )


def _wait_for(ref: AttemptRef) -> str:
    return f"wait for it with `sgpu wait {shlex.quote(str(ref))}`, or cancel it first"
