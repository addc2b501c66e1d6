"""Whether a run can work on Databricks, said at plan time."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from sgpu_decl.backends.databricks.workspace import Workspaces
from sgpu_decl.backends.interpreting import interpreter_of
from sgpu_decl.config.env import Env
from sgpu_decl.config.pools import choose_pool
from sgpu_decl.config.run import RunConfig
from sgpu_decl.diagnostics.diagnostic import Diagnostic
from sgpu_decl.diagnostics.place import Place
from sgpu_decl.model.desired import Interpreter
from sgpu_decl.model.pool import PoolChoice
from sgpu_decl.staging.snapshot import Snapshot

__all__ = ["DatabricksSurvey"]


class DatabricksSurvey:
    """See `backends.base.Survey`."""

    def __init__(self, workspaces: Workspaces) -> None:
        self._workspaces = workspaces

    def interpreter(self, env: Env, folder: Path) -> Interpreter | None:
        """The platform has the Python that ranks use. What is captured or locked is made from one
        here, and sent."""
        if env.snapshot or env.lock or env.requirements:
            return interpreter_of(env.python, folder)
        return None

    def pool(self, config: RunConfig) -> tuple[PoolChoice | None, Sequence[Diagnostic]]:
        return choose_pool(config.pool, os.environ)

    def check(
        self,
        config: RunConfig,
        places: Mapping[str, Place],
        folder: Path,
        *,
        called: bool,
    ) -> Sequence[Diagnostic]:
        self._workspaces.of(config.backend).connection.start()
        return ()

    def check_code(
        self, config: RunConfig, places: Mapping[str, Place], code: Snapshot
    ) -> Sequence[Diagnostic]:
        return ()
