"""The output that launches with `resume` find. Backends are asked for the runs alone that a plan
launches: an answer costs a request of each attempt."""

from collections.abc import Iterable

from sgpu_decl.backends.launch_request import config_of
from sgpu_decl.errors import BackendError
from sgpu_decl.model.address import Address
from sgpu_decl.model.attempt import AttemptRef
from sgpu_decl.model.plan import Change
from sgpu_decl.model.state import State
from sgpu_decl.planning.project import Project


def earlier_outputs(
    project: Project, state: State, launches: Iterable[Change]
) -> dict[Address, AttemptRef | None]:
    """Return the newest attempt of each run that left output where a launch looks for it: on the
    same backend, in the same storage. If its backend does not answer, a run is left out.

    Args:
        launches: changes that launch runs with `resume`.
    """
    outputs: dict[Address, AttemptRef | None] = {}
    for change in launches:
        try:
            outputs[change.address] = _earlier_output(project, state, change)
        except BackendError:  # a storage that does not answer is no reason not to plan
            continue
    return outputs


def _earlier_output(project: Project, state: State, change: Change) -> AttemptRef | None:
    assert change.launch is not None and change.attempt is not None  # noqa: S101, PT018  it launches
    config = None
    for attempt in reversed(project.states.history(change.moved_from or change.address)):
        if attempt.backend != change.backend:
            continue
        config = config or config_of(
            AttemptRef(change.address, change.attempt), change.launch.inputs
        )
        attempts = project.backend(change.backend).attempts
        if attempts.left_output(state.launch_of(attempt), config):
            return AttemptRef(change.address, attempt.ref.number)
    return None
