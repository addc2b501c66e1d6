"""Launches in a workspace: staged in a launch folder, and submitted to its Jobs API."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from sgpu_decl.backends.base import LaunchRequest
from sgpu_decl.backends.databricks.api.connection import FIRST_ANSWER
from sgpu_decl.backends.databricks.launching.node_program import WorkspaceNodes
from sgpu_decl.backends.databricks.watching.attempts import DatabricksAttempts
from sgpu_decl.backends.databricks.workspace import Workspace, Workspaces
from sgpu_decl.backends.remote.launcher import RemoteLauncher
from sgpu_decl.backends.remote.launches import RemoteLaunches
from sgpu_decl.diagnostics.diagnostic import Diagnostic
from sgpu_decl.errors import BackendError, OutcomeUnknown
from sgpu_decl.model.address import Kind
from sgpu_decl.model.jsonable import Json
from sgpu_decl.model.launch import LaunchRecord
from sgpu_decl.model.step_progress import Progress

if TYPE_CHECKING:
    from sgpu_decl.backends.backend_context import BackendContext


class DatabricksLauncher(RemoteLauncher):
    """The platform starts the nodes of a run, and knows its token."""

    def __init__(
        self,
        context: "BackendContext",
        launches: RemoteLaunches,
        attempts: DatabricksAttempts,
        workspaces: Workspaces,
    ) -> None:
        super().__init__(context, launches, attempts, WorkspaceNodes())
        self._workspaces = workspaces
        self._runs = attempts

    def check(self, launching: LaunchRequest) -> None:
        connection = self._workspace(launching).connection
        connection.start()
        super().check(launching)
        connection.await_answer()  # before any effect

    def prepare(
        self, launchings: Sequence[LaunchRequest], progress: Progress
    ) -> Sequence[Diagnostic]:
        from sgpu_decl.backends.databricks.launching.experiment import experiment_of
        from sgpu_decl.backends.databricks.launching.experiment_access import share_experiment

        shared: dict[object, tuple[Diagnostic, ...]] = {}  # cells of a matrix share an experiment
        for launching in launchings:
            config, workspace = launching.config, self._workspace(launching)
            workspace.connection.await_answer(
                lambda seconds: progress.advance("connecting", round(seconds), int(FIRST_ANSWER))
            )
            if config.permissions:
                experiment = experiment_of(config, workspace.experiments)
                key = (workspace, experiment.path, config.permissions)
                if key not in shared:
                    shared[key] = share_experiment(workspace, config, experiment)
        # The folder of a job may be there from an earlier apply.
        super().prepare(
            [
                item
                for item in launchings
                if item.ref.address.kind is Kind.RUN or not self.staged(item.record)
            ],
            progress,
        )
        return tuple(item for warnings in shared.values() for item in warnings)

    def start(self, launching: LaunchRequest, folder: str) -> Mapping[str, Json]:
        from sgpu_decl.backends.databricks.api.sdk_errors import UNSURE
        from sgpu_decl.backends.databricks.launching.mlflow_metadata import mlflow_metadata
        from sgpu_decl.backends.databricks.launching.submit import submit_request

        workspace = self._workspace(launching)
        workspace.make_experiment_folder(launching.config)
        body = submit_request(
            workspace.staged_launch(launching, folder),
            ref=launching.ref,
            token=launching.record.token,
        )
        try:
            answer = workspace.connection.tell(
                f"submitting `{launching.ref}`", "/api/2.2/jobs/runs/submit", body
            )
        except BackendError as error:
            if error.code in UNSURE:
                raise OutcomeUnknown(
                    f"{error.message}; whether it was started is not known",
                    hint="apply again: it is found, or else started, and never twice",
                ) from error
            raise
        return {
            "run_id": int(str(answer["run_id"])),
            "submitted": workspace.connection.now(),
            "mlflow": mlflow_metadata(launching),
        }

    def cancel(self, record: LaunchRecord) -> None:
        self._runs.cancel(record)

    def _workspace(self, launching: LaunchRequest) -> Workspace:
        return self._workspaces.of(launching.config.backend)
