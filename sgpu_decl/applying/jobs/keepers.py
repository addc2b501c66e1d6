"""The keeper that a recorded or planned job speaks of."""

from typing import cast

from sgpu_decl.applying.jobs.desiring import Keepers
from sgpu_decl.backends.keeping import JobKeeper
from sgpu_decl.config.backend import Backend
from sgpu_decl.errors import BackendError
from sgpu_decl.model.job import JobHandle
from sgpu_decl.planning.differing import parse

__all__ = ["backend_in", "keeper_for", "title_in"]


def backend_in(spec: str) -> Backend:
    """The `backend` of a job's spec."""
    return Backend.model_validate(parse(spec).get("backend", {}))


def title_in(spec: str) -> str:
    """What a job is called."""
    return cast("str", parse(spec).get("name", ""))


def keeper_for(spec: str, handle: JobHandle | None, keepers: Keepers) -> JobKeeper:
    """The keeper of a job, known to be where the job is.

    Raises:
        BackendError: the credentials that are named lead to another workspace now.
    """
    keeper = keepers(backend_in(spec))
    if handle is not None and keeper.workspace != handle.workspace:
        raise BackendError(
            f"the job {handle.id} is kept in `{handle.workspace}`, and `{keeper.workspace}` is "
            "meant now",
            hint="use the profile of that workspace, or forget the job with `sgpu state rm`",
            code="other_workspace",
        )
    return keeper
