"""The local backend: attempt folders on disk, the node agent as their supervisor."""

import os
from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING

from sgpu_decl.backends.base import Backend, Launcher, Storage
from sgpu_decl.backends.local.local_attempts import LocalAttempts

if TYPE_CHECKING:
    from sgpu_decl.backends.backend_context import BackendContext
    from sgpu_decl.backends.job_backend import JobBackend
    from sgpu_decl.backends.local.local_survey import LocalSurvey
    from sgpu_decl.config.backend import BackendOptions


class LocalBackend(Backend):
    """The backend of a project and target on this machine. `sgpu status` only looks at attempts:
    the other parts are loaded where one is used."""

    def __init__(self, context: "BackendContext") -> None:
        self._context = context
        self._layout = context.layout

    @cached_property
    def survey(self) -> "LocalSurvey":
        from sgpu_decl.backends.local.local_survey import LocalSurvey

        return LocalSurvey(os.environ, self._context.pythons)

    @cached_property
    def launcher(self) -> Launcher:
        from sgpu_decl.backends.local.local_launcher import LocalLauncher

        return LocalLauncher(self._context, self.survey, os.environ)

    @cached_property
    def attempts(self) -> LocalAttempts:
        return LocalAttempts(self._layout, os.environ, self._context.project)

    @cached_property
    def jobs(self) -> "Callable[[BackendOptions], JobBackend]":
        from sgpu_decl.backends.local.jobs.local_jobs import LocalJobs

        kept = LocalJobs(self._context, self.survey)
        return lambda _: kept  # all blocks mean this machine

    def require_named(self, block: "BackendOptions", owner: str) -> None:
        """No block names a host."""

    @cached_property
    def storage(self) -> Storage:
        from sgpu_decl.backends.local.local_storage import LocalStorage

        return LocalStorage(self._layout, self._context.environments)
