"""Where launches in workspaces lie."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from sgpu_decl.backends.attempt_layout import AttemptLayout
from sgpu_decl.backends.databricks.workspace import Workspace, Workspaces
from sgpu_decl.backends.launch_request import LaunchRequest
from sgpu_decl.backends.remote.launching.remote_launches import RemoteLaunches
from sgpu_decl.backends.remote.launching.remote_reference import reference_facts
from sgpu_decl.backends.remote.staging.staging_area import StagingArea
from sgpu_decl.model.jsonable import Json
from sgpu_decl.model.launch import LaunchRecord

if TYPE_CHECKING:
    from sgpu_decl.config.run import RunConfig

_OF_THE_RUN = ("run_id", "submitted", "task", "after")  # facts of a marker, see DatabricksAttempts


class WorkspaceLaunches(RemoteLaunches):
    """The reference of a launch names the workspace and the user who launches, and once it was
    submitted its run, so that it is found without the launch folder, too."""

    def __init__(self, layout: AttemptLayout, workspaces: Workspaces) -> None:
        super().__init__(
            layout, lambda config: workspaces.of(config.backend).area, "databricks.json"
        )
        self._workspaces = workspaces

    def place(self, config: "RunConfig") -> Mapping[str, Json]:
        return self._workspaces.of(config.backend).identity.facts

    def outcome(self, marker: Mapping[str, Any]) -> Mapping[str, Json]:
        return {name: marker[name] for name in _OF_THE_RUN if name in marker}

    def workspace(self, record: LaunchRecord) -> Workspace:
        """The workspace of a launch. Raises BackendError: only its record names that."""
        request = LaunchRequest(record=record)
        block = request.backend if request.of_file else self.config(record).backend
        return self._workspaces.recorded(block, record.owner)

    def area(self, record: LaunchRecord) -> StagingArea:
        return self.workspace(record).area

    def shares_area(self, record: LaunchRecord, config: "RunConfig") -> bool:
        facts, workspace = reference_facts(record), self._workspaces.of(config.backend)
        if self._workspaces.meant(self.config(record).backend) is not workspace:
            return False
        there = "host" not in facts or workspace.identity.is_workspace_of(facts)
        return there and super().shares_area(record, config)

    def run(self, record: LaunchRecord) -> Mapping[str, Any]:
        """What is known of the run that a launch became, from its marker, else from the state;
        empty if it is not known to have become one."""
        marker = self.marker(record)
        known = marker if marker is not None else reference_facts(record)
        return known if "run_id" in known else {}
