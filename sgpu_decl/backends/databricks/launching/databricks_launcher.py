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
from sgpu_decl.backends.databricks.launching.workspace_node_program import WorkspaceNodeProgram
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

    marks_states = True

    _launches: WorkspaceLaunches

    def __init__(
        self,
        context: "BackendContext",
        launches: WorkspaceLaunches,
        attempts: DatabricksAttempts,
        workspaces: Workspaces,
        launch_hosts: LaunchHosts,
    ) -> None:
        super().__init__(context, launches, attempts, WorkspaceNodeProgram())
        self._workspaces = workspaces
        self._launch_hosts = launch_hosts
        self._runs = attempts
        self._submissions: dict[str, JoinedSubmission] = {}  # by the token of each launch
        self._joined_runs: dict[str, int] = {}  # by the token of a submission

    def check(self, request: LaunchRequest) -> None:
        workspace = self._workspace(request)
        connection = workspace.connection
        if workspace.account.host is not None:
            self._launch_hosts.add(workspace.account.host)
        connection.start()
        super().check(request)
        connection.await_answer()  # before any effect
        self.require_upstreams(request, "in another workspace or with another `staging`")

    def prepare(
        self, requests: Sequence[LaunchRequest], progress: Progress
    ) -> Sequence[Diagnostic]:
        shared: dict[object, tuple[Diagnostic, ...]] = {}  # cells of a matrix share an experiment
        for request in requests:
            config, workspace = request.config, self._workspace(request)
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
                for item in requests
                if item.ref.address.kind is Kind.RUN or not self.staged(item.record)
            ],
            progress,
        )
        return tuple(item for warnings in shared.values() for item in warnings)

    def staged_facts(self, request: LaunchRequest) -> Mapping[str, Json]:
        if not request.group:
            return {}

        folder = self._launches.folder(request.group[0])
        return {"joined": {"folder": folder, "token": joined_token(request.group)}}

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

    def unstage(self, request: LaunchRequest) -> None:
        super().unstage(request)
        self._submissions.pop(request.record.token, None)

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

    def stage_joined(self, requests: Sequence[LaunchRequest]) -> None:
        super().stage_joined(requests)
        if len(requests) > 1:
            with self._all_or_none(requests):
                self._write_submission(requests)

    def launch_joined(self, requests: Sequence[LaunchRequest]) -> Sequence[str | None]:
        with self._all_or_none(requests):
            return super().launch_joined(requests)

    @contextmanager
    def _all_or_none(self, requests: Sequence[LaunchRequest]) -> Iterator[None]:
        try:
            yield
        except OutcomeUnknown:
            raise
        except SgpuError:
            if len(requests) > 1:
                for request in requests:
                    self.unstage(request)
            raise

    def _write_submission(self, requests: Sequence[LaunchRequest]) -> None:
        """Write the request of all launches. Once that is done, a crash drops none of them: each is
        completed by sending the request again."""
        workspace, staged = self._workspace(requests[0]), []
        for request in requests:
            workspace.make_experiment_folder(request.config)
            folder = self._launches.folder(request.record)
            staged.append(workspace.staged_launch(request, folder))
        first = requests[0].record
        submission = joined_submission(requests, staged, self._launches.folder(first))
        try:
            self._launches.area(first).files.put(submission.path, submission.to_bytes())
        except BackendError as error:
            if error.code in self._unsure():
                raise OutcomeUnknown(error.message, hint=error.hint) from error
            raise
        for request in requests:
            self._submissions[request.record.token] = submission

    def start(self, request: LaunchRequest, folder: str) -> Mapping[str, Json]:
        workspace = self._workspace(request)
        of_task: Mapping[str, Json] = {}
        joined = self._submissions.get(request.record.token)
        if joined is not None:
            run_id = self._submit_joined(request, joined)
            of_task = joined.tasks[request.record.token]
        else:
            workspace.make_experiment_folder(request.config)
            body = submit_request(
                workspace.staged_launch(request, folder),
                ref=request.ref,
                token=request.record.token,
            )
            run_id = self._submit(request, f"submitting `{request.ref}`", body)
        return {
            "run_id": run_id,
            "submitted": workspace.connection.now(),
            "mlflow": mlflow_metadata(request),
            **of_task,
        }

    def _submit_joined(self, request: LaunchRequest, submission: "JoinedSubmission") -> int:
        """The run that launches are the tasks of, submitted by the first that is launched."""
        if submission.token not in self._joined_runs:
            try:
                doing = "submitting runs that are launched together"
                run_id = self._submit(request, doing, dict(submission.body))
            except OutcomeUnknown:
                raise
            except BackendError:
                # Nothing was started of the others either, and nothing is to be completed.
                self._submissions.pop(request.record.token, None)
                with suppress(BackendError):
                    self._launches.area(request.record).files.delete(submission.path)
                raise
            self._joined_runs[submission.token] = run_id
        return self._joined_runs[submission.token]

    def _submit(self, request: LaunchRequest, doing: str, body: dict[str, Json]) -> int:
        connection = self._workspace(request).connection
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

    def _workspace(self, request: LaunchRequest) -> Workspace:
        return self._workspaces.of(request.backend)
