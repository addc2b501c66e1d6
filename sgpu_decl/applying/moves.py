"""Giving a resource another address: `renamed_from` in a file, and `sgpu state mv`."""

from collections.abc import Callable

from sgpu_decl.errors import SgpuError
from sgpu_decl.model.address import Address, Kind
from sgpu_decl.model.event import ApplyEvent, Step
from sgpu_decl.model.plan import Plan
from sgpu_decl.planning.live_state import Backends
from sgpu_decl.storing.state_store import StateWriter


def move_recorded(
    writer: StateWriter, backends: Backends, source: Address, destination: Address
) -> None:
    """Move the record of a resource, then what its attempts left on this machine. If this process
    is killed in between, and on other machines, the local backend moves a folder when it looks for
    it (`AttemptLayout.found`). What remote backends keep here is read from the platform again.

    Raises:
        NotFound: nothing is recorded at `source`.
        SgpuError: `destination` has a history or folders of its own (`move_refused`). Nothing was
            moved.
    """
    resource = writer.state.resources.get(source)
    writer.move(source, destination)
    if resource is None or source.kind is not Kind.RUN:
        return  # others have no folders
    try:
        backends(resource.backend).storage.move(source, destination)
    except SgpuError:
        writer.move(destination, source)
        raise


def move_renamed(
    plan: Plan, writer: StateWriter, backends: Backends, sink: Callable[[ApplyEvent], None]
) -> None:
    """Move the history of what a plan renames, before anything is launched.

    Raises:
        SgpuError: a resource cannot be moved. Those before it have been: the next plan does not
            list them again.
    """
    for change in plan.changes:
        if change.moved_from is not None:
            move_recorded(writer, backends, change.moved_from, change.address)
            message = f"it was {change.moved_from}"
            sink(ApplyEvent(step=Step.MOVED, address=change.address, message=message))
