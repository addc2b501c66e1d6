"""Which module holds which backend; none is imported before it is named."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from sgpu_decl.backends.base import Backend, Survey
from sgpu_decl.errors import BackendError
from sgpu_decl.model.attempt import AttemptRef
from sgpu_decl.staging.store import Store

if TYPE_CHECKING:
    from sgpu_decl.backends.keeping import JobKeeper
    from sgpu_decl.config.backend import Backend as BackendBlock
    from sgpu_decl.environments.stored.store import EnvironmentStore
    from sgpu_decl.model.state import Attempt

__all__ = ["Surroundings", "open_backend", "open_keeper", "open_survey"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What backends of one project and target are given. The store of environments is opened where
    one is used; `recorded` gives the lineage of the state and what it says of an attempt, whose
    launch may not be over."""

    project: Path
    state_dir: Path
    store: Store
    environments: "Callable[[], EnvironmentStore]"
    recorded: "Callable[[AttemptRef], tuple[str, Attempt | None]]"


def open_backend(kind: str, surroundings: Surroundings) -> Backend:
    """Return the backend called `kind`.

    Raises:
        BackendError: there is none of that name.
    """
    if kind == "local":
        from sgpu_decl.backends.local.backend import LocalBackend

        return LocalBackend(
            project=surroundings.project,
            state_dir=surroundings.state_dir,
            store=surroundings.store,
            environments=surroundings.environments,
            environ=os.environ,
        )
    if kind == "databricks":
        from sgpu_decl.backends.databricks.backend import DatabricksBackend

        return DatabricksBackend(surroundings)
    raise BackendError(f"this version has no backend `{kind}`", hint="use `backend: local`")


def open_keeper(block: "BackendBlock", backend: Callable[[str], Backend]) -> "JobKeeper":
    """Return the keeper of jobs that a `backend` block names; it shares the connections of the
    backend.

    Raises:
        BackendError: that kind of backend keeps none.
    """
    if block.kind == "databricks":
        from sgpu_decl.backends.databricks.backend import DatabricksBackend

        opened = backend(block.kind)
        assert isinstance(opened, DatabricksBackend)  # noqa: S101  what that kind is
        return opened.keeper(block)
    raise BackendError(
        f"the backend `{block.kind}` keeps no jobs", hint="use `backend: databricks`"
    )


def open_survey(kind: str, backend: Callable[[str], Backend]) -> Survey | None:
    """Return what planning asks of the backend called `kind`; `None` where there is none of that
    name. That of the local one is had without the backend, most of which no plan needs."""
    if kind == "local":
        from sgpu_decl.backends.local.checking import LocalSurvey

        return LocalSurvey()
    return backend(kind).survey if kind == "databricks" else None
