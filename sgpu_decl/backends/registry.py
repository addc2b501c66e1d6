"""Which module holds which backend; none is imported before it is named."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from sgpu_decl.backends.base import Backend
from sgpu_decl.errors import BackendError
from sgpu_decl.staging.store import Store

if TYPE_CHECKING:
    from sgpu_decl.environments.stored.store import EnvironmentStore

__all__ = ["open_backend"]


def open_backend(
    kind: str,
    *,
    project: Path,
    state_dir: Path,
    store: Store,
    environments: "Callable[[], EnvironmentStore]",
) -> Backend:
    """Return the backend called `kind` for one project and target; the store of environments is
    opened where one is used.

    Raises:
        BackendError: there is none of that name.
    """
    if kind == "local":
        from sgpu_decl.backends.local.backend import LocalBackend

        return LocalBackend(
            project=project,
            state_dir=state_dir,
            store=store,
            environments=environments,
            environ=os.environ,
        )
    raise BackendError(f"this version has no backend `{kind}`", hint="use `backend: local`")
