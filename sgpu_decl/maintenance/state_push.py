"""`sgpu state push`: what `sgpu state pull` printed goes into the store of the project."""

import json
from pathlib import Path

from sgpu_decl.errors import SgpuError
from sgpu_decl.facts.project import Project
from sgpu_decl.frozen_dataclass import dataclass
from sgpu_decl.storing.migration import restore
from sgpu_decl.storing.state_json import UNREADABLE, problem_of, state_from_json
from sgpu_decl.storing.stores import local_store

__all__ = ["PushedState", "push"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PushedState:
    """How much was recorded."""

    resources: int
    attempts: int


def push(project: Project, file: Path) -> PushedState:
    """Record a state that was printed, in the place of what is there.

    Raises:
        SgpuError: the file is no such state, or does not fit what is recorded.
    """
    try:
        state, attempts = state_from_json(json.loads(file.read_bytes()))
    except OSError as error:
        raise SgpuError(f"`{file}` cannot be read: {error.strerror}", code="unreadable") from error
    except UNREADABLE as error:
        raise SgpuError(
            f"`{file}` holds no state that `sgpu state pull` has printed: it {problem_of(error)}",
            hint="print it again with this version of sgpu: `sgpu state pull > state.json`",
            code="no_state_file",
        ) from error
    local = project.shared_place is None
    store = local_store(project.state_dir) if local else project.states
    restore(store, state, attempts, patience=project.patience)
    return PushedState(resources=len(state.resources), attempts=len(attempts))
