"""`sgpu state compact`: old entries of a shared state go, and proposals that have expired."""

from sgpu_decl.facts.project import Project
from sgpu_decl.frozen_dataclass import dataclass
from sgpu_decl.maintenance.state_migration import no_shared_state

__all__ = ["CompactedState", "compact"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactedState:
    """How many entries and proposals were deleted. `first` is the number of the oldest entry that
    stays after the first one of all; None where no entry was deleted."""

    entries: int
    first: int | None
    proposals: int


def compact(project: Project, *, older_than: float) -> CompactedState:
    """Delete what is older than `older_than` seconds, and is not needed to go on.

    Raises:
        SgpuError: the project names no shared store, this user may not delete there, or a newer
            sgpu has written what would be deleted.
    """
    place = project.shared_place
    if place is None:
        raise no_shared_state("there is nothing to compact in a state of this machine")
    store = project.open_shared(place)
    try:
        done = store.compact(older_than, patience=project.patience)
    finally:
        store.close()
    expired = project.proposals.drop_expired()
    return CompactedState(entries=done.entries, first=done.first, proposals=expired)
