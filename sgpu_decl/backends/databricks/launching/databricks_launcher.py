"""Launches in a workspace: staged in a launch folder, and submitted to its Jobs API."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from sgpu_decl.backends.databricks.api.connection import FIRST_ANSWER
from sgpu_decl.backends.databricks.api.sdk_errors import UNSURE
from sgpu_decl.backends.databricks.launching.experiment import experiment_of
from sgpu_decl.backends.databricks.launching.joined_runs import (
    joined_submission,
    joined_token,
    read_submission,
    submission_path,
)
from sgpu_decl.backends.databricks.launching.submit import submit_request
from sgpu_decl.backends.databricks.launching.workspace_launches import WorkspaceLaunches
from sgpu_decl.backends.databricks.launching.workspace_mlflow import (
    mlflow_metadata,
    share_experiment,
)
from sgpu_decl.backends.databricks.launching.workspace_nodes import WorkspaceNodes
from sgpu_decl.backends.databricks.watching.databricks_attempts import DatabricksAttempts
from sgpu_decl.backends.databricks.workspace import Workspace, Workspaces
from sgpu_decl.backends.launch_request import LaunchRequest
from sgpu_decl.backends.remote.launching.launch_hosts import LaunchHosts
from sgpu_decl.backends.remote.launching.remote_launcher import RemoteLauncher
from sgpu_decl.backends.remote.launching.remote_reference import reference_facts
from sgpu_decl.diagnostics.diagnostic import Diagnostic
from sgpu_decl.errors import BackendError, OutcomeUnknown, SgpuError
from sgpu_decl.model.address import Kind
from sgpu_decl.model.jsonable import Json
from sgpu_decl.model.launch import LaunchRecord
from sgpu_decl.model.step_progress import Progress
from sgpu_decl.places.file_place import PlaceMissing

if TYPE_CHECKING:
    from sgpu_decl.backends.backend_context import BackendContext
    from sgpu_decl.backends.databricks.launching.joined_runs import JoinedSubmission


class DatabricksLauncher(RemoteLauncher):
    """The platform starts the nodes of a run, and knows its token."""

    _launches: WorkspaceLaunches

    def __init__(
        self,
        context: "BackendContext",
        launches: WorkspaceLaunches,
        attempts: DatabricksAttempts,
        workspaces: Workspaces,
        launch_hosts: LaunchHosts,
    ) -> None:
        super().__init__(context, launches, attempts, WorkspaceNodes())
        self._workspaces = workspaces
        self._launch_hosts = launch_hosts
        self._runs = attempts
        self._submissions: dict[str, JoinedSubmission] = {}  # by the token of each launch
        self._joined_runs: dict[str, int] = {}  # by the token of a submission

    def check(self, launching: LaunchRequest) -> None:
        workspace = self._workspace(launching)
        connection = workspace.connection
        if workspace.account.host is not None:
            self._launch_hosts.add(workspace.account.host)
        connection.start()
        super().check(launching)
        connection.await_answer()  # before any effect
        self.require_upstreams(launching, "in another workspace or with another `staging`")

    def prepare(
        self, launchings: Sequence[LaunchRequest], progress: Progress
    ) -> Sequence[Diagnostic]:
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

    def staged_facts(self, launching: LaunchRequest) -> Mapping[str, Json]:
        if not launching.joined:
            return {}

        folder = self._launches.folder(launching.joined[0])
        return {"joined": {"folder": folder, "token": joined_token(launching.joined)}}

    def is_whole(self, record: LaunchRecord, marker: Mapping[str, Any]) -> bool:
        """A launch that is joined with others is whole once their submission is written. `launch`
        then sends that again."""
        self._submissions.pop(record.token, None)
        joined = marker.get("joined")
        if joined is None:
            return True

        path = submission_path(joined["folder"])
        try:
            submission = read_submission(path, self._launches.area(record).files.get(path))
        except PlaceMissing:
            return False
        if submission is None or submission.token != joined["token"]:
            return False  # it is one of earlier launches
        self._submissions[record.token] = submission
        return True

    def unstage(self, launching: LaunchRequest) -> None:
        super().unstage(launching)
        self._submissions.pop(launching.record.token, None)

    def require_completable(self, record: LaunchRecord) -> None:
        """Nobody knows whether the workspace finds a run by its token for another user than who
        submitted it (evidence: D5)."""
        user = self._launches.workspace(record).user
        began = reference_facts(record).get("user", user)
        if began != user:
            raise OutcomeUnknown(
                f"`{began}` began it from `{self._launches.folder(record)}`, and may have "
                f"submitted it; if `{user}` submits it, it may run twice"
            )

    def stage_joined(self, launchings: Sequence[LaunchRequest]) -> None:
        super().stage_joined(launchings)
        if len(launchings) > 1:
            with self._all_or_none(launchings):
                self._write_submission(launchings)

    def launch_joined(self, launchings: Sequence[LaunchRequest]) -> Sequence[str | None]:
        with self._all_or_none(launchings):
            return super().launch_joined(launchings)

    @contextmanager
    def _all_or_none(self, launchings: Sequence[LaunchRequest]) -> Iterator[None]:
        try:
            yield
        except OutcomeUnknown:
            raise
        except SgpuError:
            if len(launchings) > 1:
                for launching in launchings:
                    self.unstage(launching)
            raise

    def _write_submission(self, launchings: Sequence[LaunchRequest]) -> None:
        """Write the request of all launches. Once that is done, a crash drops none of them: each is
        completed by sending the request again."""
        workspace, staged = self._workspace(launchings[0]), []
        for launching in launchings:
            workspace.make_experiment_folder(launching.config)
            folder = self._launches.folder(launching.record)
            staged.append(workspace.staged_launch(launching, folder))
        first = launchings[0].record
        submission = joined_submission(launchings, staged, self._launches.folder(first))
        try:
            self._launches.area(first).files.put(submission.path, submission.to_bytes())
        except BackendError as error:
            if error.code in self._unsure():
                raise OutcomeUnknown(error.message, hint=error.hint) from error
            raise
        for launching in launchings:
            self._submissions[launching.record.token] = submission

    def start(self, launching: LaunchRequest, folder: str) -> Mapping[str, Json]:
        workspace = self._workspace(launching)
        of_task: Mapping[str, Json] = {}
        joined = self._submissions.get(launching.record.token)
        if joined is not None:
            run_id = self._submit_joined(launching, joined)
            of_task = joined.tasks[launching.record.token]
        else:
            workspace.make_experiment_folder(launching.config)
            body = submit_request(
                workspace.staged_launch(launching, folder),
                ref=launching.ref,
                token=launching.record.token,
            )
            run_id = self._submit(launching, f"submitting `{launching.ref}`", body)
        return {
            "run_id": run_id,
            "submitted": workspace.connection.now(),
            "mlflow": mlflow_metadata(launching),
            **of_task,
        }

    def _submit_joined(self, launching: LaunchRequest, submission: "JoinedSubmission") -> int:
        """The run that launches are the tasks of, submitted by the first that is launched."""
        if submission.token not in self._joined_runs:
            try:
                doing = "submitting runs that are launched together"
                run_id = self._submit(launching, doing, dict(submission.body))
            except OutcomeUnknown:
                raise
            except BackendError:
                # Nothing was started of the others either, and nothing is to be completed.
                self._submissions.pop(launching.record.token, None)
                with suppress(BackendError):
                    self._launches.area(launching.record).files.delete(submission.path)
                raise
            self._joined_runs[submission.token] = run_id
        return self._joined_runs[submission.token]

    def _submit(self, launching: LaunchRequest, doing: str, body: dict[str, Json]) -> int:
        connection = self._workspace(launching).connection
        try:
            answer = connection.tell(doing, "/api/2.2/jobs/runs/submit", body)
        except BackendError as error:
            if error.code in self._unsure():
                raise OutcomeUnknown(
                    f"{error.message}; whether it was started is not known",
                    hint="apply again: it is found, or else started, and never twice",
                ) from error
            raise
        return int(str(answer["run_id"]))

    @staticmethod
    def _unsure() -> frozenset[str]:
        return UNSURE

    def cancel(self, record: LaunchRecord) -> None:
        self._runs.cancel(record)

    def _workspace(self, launching: LaunchRequest) -> Workspace:
        return self._workspaces.of(launching.config.backend)
