"""What launches take along, on its way to workspaces: what they share, and their folders."""

import tempfile
from collections.abc import Sequence
from typing import TYPE_CHECKING

from sgpu_decl.backends.base import Launching
from sgpu_decl.backends.configured import config_of
from sgpu_decl.backends.databricks.holding import Hold
from sgpu_decl.backends.databricks.places import Uses
from sgpu_decl.backends.databricks.workspace import Workspace, Workspaces
from sgpu_decl.environments.progress import Progress, Quiet
from sgpu_decl.errors import BackendError, SgpuError
from sgpu_decl.model.attempt import AttemptRef

if TYPE_CHECKING:
    from sgpu_decl.backends.registry import Surroundings

__all__ = ["Bringing"]


class Bringing:
    """Brings it there, and keeps what is shared from being freed until a launch is over with it."""

    def __init__(self, surroundings: "Surroundings", workspaces: Workspaces) -> None:
        self._project = surroundings.project
        self._store = surroundings.store
        self._environments = surroundings.environments
        self._workspaces = workspaces
        self._holds: dict[AttemptRef, Hold] = {}

    def share(self, launchings: Sequence[Launching], progress: Progress) -> None:
        """Have in their workspaces what launches share with others.

        Raises:
            SgpuError: it is missing here, or the workspace does not take it.
        """
        groups: dict[Workspace, list[Launching]] = {}
        for launching in launchings:
            groups.setdefault(self._workspace(launching), []).append(launching)
        for workspace, group in groups.items():
            first = group[0]
            folder = workspace.places.launch(first.lineage, first.ref, first.token)
            hold = Hold(workspace, folder, [it.ref for it in group])
            hold.begin()
            try:
                for launching in group:
                    self._bring(launching, progress)
            except SgpuError:
                hold.drop()
                raise
            self._holds |= dict.fromkeys((it.ref for it in group), hold)

    def fill(self, launching: Launching) -> Uses:
        """Have a launch folder with all that is in it, and what it shares.

        Raises:
            SgpuError: it is missing here, or the workspace does not take it.
        """
        if launching.ref not in self._holds:
            self.share([launching], Quiet())
        try:
            return self._filled(launching)
        except SgpuError:
            self.over(launching.ref)
            raise

    def over(self, ref: AttemptRef) -> None:
        """A launch is not on its way any more."""
        hold = self._holds.pop(ref, None)
        if hold is not None:
            hold.over(ref)

    def _workspace(self, launching: Launching) -> Workspace:
        return self._workspaces.of(config_of(launching.ref, launching.spec).backend)

    def _filled(self, launching: Launching) -> Uses:
        from sgpu_decl.backends.databricks.staging import bring_launch

        config = config_of(launching.ref, launching.spec)
        uses = self._bring(launching, Quiet())
        workspace = self._workspace(launching)
        try:
            bring_launch(
                workspace,
                launching,
                config,
                workspace.places.launch(launching.lineage, launching.ref, launching.token),
                root=(self._project / launching.owner).parent / (config.code.root or "."),
                store=self._store,
                environment=uses.environment,
            )
        except OSError as error:
            raise BackendError(
                f"`{launching.ref}` could not be staged: {error}",
                hint=f"see that there is room in `{tempfile.gettempdir()}`",
                code="launch_failed",
            ) from error
        return uses

    def _bring(self, launching: Launching, progress: Progress) -> Uses:
        from sgpu_decl.backends.databricks.staging import (
            bring_agent,
            bring_code,
            bring_environment,
        )

        workspace = self._workspace(launching)
        agent = bring_agent(workspace)
        code, environment = launching.code_digest, launching.environment_digest
        if code is not None:
            bring_code(workspace, self._store, code, progress)
        if environment is not None:
            store = self._environments()
            environment = store.built(environment) or environment
            bring_environment(workspace, store, environment, progress)
        return Uses(agent=agent, code=code, environment=environment)
