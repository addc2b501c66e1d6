"""`sgpu state mv` and `rm`: changes to the record alone, refused while a run is active."""

import shlex

from sgpu_decl.applying.moves import move_recorded
from sgpu_decl.applying.recovery import refresh
from sgpu_decl.errors import ActiveRun, SgpuError
from sgpu_decl.facts.live_state import refs_in_launch
from sgpu_decl.facts.opened_project import OpenedProject
from sgpu_decl.model.address import Address
from sgpu_decl.model.attempt import AttemptRef, AttemptState
from sgpu_decl.planning.needed_attempts import needed_by_active
from sgpu_decl.runs.project_runs import ProjectRuns
from sgpu_decl.runs.selectors import resource_named


def move(project: OpenedProject, source: str, destination: str) -> tuple[Address, Address]:
    """Rename a resource: its history and its folders follow. Returns the old and the new address.

    Args:
        destination: an address, or a bare name, which keeps the kind of `source`.

    Raises:
        NotFound: nothing is recorded at `source`.
        ActiveRun: it is active, or an active run looks at its folders.
        SgpuError: `destination` has a history of its own.
    """
    resource = resource_named(project.state().resources, source)
    old, new = resource.address, _parse(destination, resource.address)
    if old == new:
        raise SgpuError(
            f"`{old}` has that address already", hint="name another one", code="move_refused"
        )
    with project.writing("state mv") as writer:
        _refuse_active(project, old, "its folders cannot be moved")
        refresh(writer, project.backend)
        _refuse_needed(project, old)
        move_recorded(writer, project.backend, old, new)
    return old, new


def remove(project: OpenedProject, text: str) -> Address:
    """Forget a resource; its attempts stay in history.

    Raises:
        NotFound: nothing is recorded there.
        ActiveRun: it is active, as far as this machine can ask.
    """
    old = resource_named(project.believed().resources, text).address
    with project.writing("state rm") as writer:
        _refuse_active(project, old, "without its record nothing would stop it", seen=True)
        refresh(writer, project.backend)
        writer.remove(old)
    return old


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
    project: OpenedProject, address: Address, why: str, *, seen: bool = False
) -> None:
    """`seen` leaves those out that only another machine can ask: it may be gone for good. Also
    those whose launch was begun, and nobody here can say whether they were started."""
    runs, state = ProjectRuns(project), project.believed()
    in_launch = refs_in_launch(state)
    for attempt in state.active:
        if attempt.ref.address != address:
            continue
        now = runs.status(attempt.ref).state
        if not now.active:
            continue
        if seen and now is AttemptState.STAGING and attempt.ref in in_launch:
            continue
        attempts = project.backend(attempt.backend).attempts
        if not seen or attempts.elsewhere(state.launch_of(attempt)) is None:
            raise ActiveRun(
                f"`{attempt.ref}` is active: {why}",
                hint=_wait_for(project, attempt.ref),
            )


def _refuse_needed(project: OpenedProject, address: Address) -> None:
    recorded = project.states.read_all()
    for needed, active in needed_by_active(recorded[1] if recorded else ()).items():
        if needed.address == address:
            raise ActiveRun(
                f"`{active}` is active and looks at the folder of `{needed}`: it cannot be moved",
                hint=_wait_for(project, active),
            )


def _wait_for(project: OpenedProject, ref: AttemptRef) -> str:
    command = project.shell_command(f"wait {shlex.quote(str(ref))}")
    return f"wait for it with {command}, or cancel it first"
