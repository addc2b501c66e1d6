"""`sgpu state compact`: old entries of a shared state go, and proposals that have expired."""

from sgpu_decl.facts.opened_project import OpenedProject
from sgpu_decl.frozen_dataclass import dataclass
from sgpu_decl.maintenance.state_migration import no_shared_state
from sgpu_decl.storing.journal.compaction import Compaction

__all__ = ["CompactedState", "compact"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactedState:
    """What was deleted. `proposals` is the number of those that had expired."""

    state: Compaction
    proposals: int


def compact(project: OpenedProject, *, older_than: float) -> CompactedState:
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
        state = store.compact(older_than, patience=project.patience)
    finally:
        store.close()
    return CompactedState(state=state, proposals=project.proposals.drop_expired())
