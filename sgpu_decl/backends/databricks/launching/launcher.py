"""Launches in a workspace: staged in a launch folder, and submitted to its Jobs API."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from typing import TYPE_CHECKING

from sgpu_decl.backends.base import Launcher, Launching
from sgpu_decl.backends.databricks.api.connection import FIRST_ANSWER
from sgpu_decl.backends.databricks.launching.launch_handles import LaunchHandles
from sgpu_decl.backends.databricks.watching.attempts import DatabricksAttempts
from sgpu_decl.backends.databricks.workspace import Workspace, Workspaces
from sgpu_decl.backends.remote.attempts import end_earlier
from sgpu_decl.backends.required_code import require_code
from sgpu_decl.diagnostics.diagnostic import Diagnostic
from sgpu_decl.errors import BackendError, OutcomeUnknown, SgpuError
from sgpu_decl.model.address import Kind
from sgpu_decl.model.launch import LaunchRecord
from sgpu_decl.model.step_progress import Progress
from sgpu_decl.staging.code_store import CodeStore

if TYPE_CHECKING:
    from sgpu_decl.backends.databricks.jobs.folders import JobFolders
    from sgpu_decl.backends.remote.uploader import Uploader


class DatabricksLauncher(Launcher):
    """`store` has the code of this machine; `folders` gives the launch folders of jobs."""

    def __init__(
        self,
        store: CodeStore,
        workspaces: Workspaces,
        handles: LaunchHandles,
        attempts: DatabricksAttempts,
        uploader: "Callable[[], Uploader]",
        folders: "Callable[[Workspace], JobFolders]",
    ) -> None:
        self._store = store
        self._workspaces = workspaces
        self._handles = handles
        self._attempts = attempts
        self._uploader = uploader
        self._folders = folders

    def check(self, launching: Launching) -> None:
        config = launching.config
        workspace = self._workspaces.of(config.backend)
        workspace.connection.start()
        require_code(self._store, launching)
        workspace.connection.await_answer()  # before any effect

    def prepare(self, launchings: Sequence[Launching], progress: Progress) -> Sequence[Diagnostic]:
        from sgpu_decl.backends.databricks.launching.experiment import experiment_of
        from sgpu_decl.backends.databricks.launching.experiment_access import share_experiment

        shared: dict[object, tuple[Diagnostic, ...]] = {}  # cells of a matrix share an experiment
        for launching in launchings:
            config = launching.config
            workspace = self._workspaces.of(config.backend)
            workspace.connection.await_answer(
                lambda seconds: progress.advance("connecting", round(seconds), int(FIRST_ANSWER))
            )
            if config.permissions:
                experiment = experiment_of(config, workspace.experiments)
                key = (workspace, experiment.path, config.permissions)
                if key not in shared:
                    shared[key] = share_experiment(workspace, config, experiment)
        self._uploader().share([item for item in launchings if not self._whole(item)], progress)
        return tuple(item for warnings in shared.values() for item in warnings)

    def stage(self, launching: Launching) -> None:
        from sgpu_decl.backends.databricks.launching.mlflow_metadata import mlflow_metadata
        from sgpu_decl.backends.databricks.launching.submit import submit_request
        from sgpu_decl.backends.remote.remote_gc import unstage_launch

        if self._whole(launching):
            return
        config = launching.config
        workspace = self._workspaces.of(config.backend)
        before = self._handles.here(launching.ref)
        handle = self._handles.begin(launching)
        try:
            staged = workspace.staged_launch(launching, handle.folder)
            workspace.make_experiment_folder(config)
            uses = self._uploader().fill(launching)
        except SgpuError:
            # Nothing was submitted from this folder. Without a marker it would block gc.
            if before is None or before.token != launching.record.token:
                with suppress(BackendError):
                    unstage_launch(workspace.area, handle.folder)
            raise
        body = submit_request(
            config,
            staged,
            ref=launching.ref,
            token=launching.record.token,
            placement=launching.inputs.placement,
        )
        metadata = mlflow_metadata(launching)
        handle = replace(handle, staged=True, body=body, uses=asdict(uses), mlflow=metadata)
        self._handles.write(launching.ref, handle)

    def launch(self, launching: Launching) -> str:
        try:
            return self._submit(launching)
        finally:
            self._uploader().release(launching.ref)

    def _submit(self, launching: Launching) -> str:
        from sgpu_decl.backends.databricks.api.sdk_errors import UNSURE

        handle = self._handles.staged(launching.record)
        if handle is None:
            raise BackendError(f"`{launching.ref}` is not staged", code="launch_failed")
        if handle.run_id is not None:
            return handle.folder
        end_earlier(self, self._attempts, launching.earlier)
        try:
            answer = self._handles.workspace(handle).connection.tell(
                f"submitting `{launching.ref}`", "/api/2.2/jobs/runs/submit", handle.body
            )
        except BackendError as error:
            if error.code in UNSURE:
                raise OutcomeUnknown(
                    f"{error.message}; whether it was started is not known",
                    hint="apply again: it is found, or else started, and never twice",
                ) from error
            # The correction may be in a field that is no part of the token, so stage it again.
            self._handles.write(launching.ref, replace(handle, staged=False))
            raise
        self._handles.submitted(launching.ref, handle, int(str(answer["run_id"])))
        return handle.folder

    def staged(self, record: LaunchRecord) -> bool:
        handle = self._handles.of(record)
        return handle is not None and handle.token == record.token and handle.staged

    def cancel(self, record: LaunchRecord) -> None:
        self._handles.cancel(record)

    def _whole(self, launching: Launching) -> bool:
        """Whether a launch of a job is staged, or this machine has staged one of a run. Whether
        another has is asked of the workspace where a crash left an intent: `staged`."""
        if launching.ref.address.kind is Kind.JOB:
            block = launching.config.backend
            return self._folders(self._workspaces.of(block)).staged(launching)
        return self._handles.staged(launching.record) is not None
