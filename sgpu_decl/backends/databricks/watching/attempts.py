"""Attempts in a workspace: its Jobs API, and what nodes brought back."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from sgpu_decl.backends.base import LogReader, NoLog
from sgpu_decl.backends.databricks.watching.run_cache import OFTEN
from sgpu_decl.backends.databricks.watching.run_part import RunPart, run_part
from sgpu_decl.backends.databricks.watching.run_status import (
    is_settled,
    missing_run_status,
    mlflow_runs,
    run_status,
)
from sgpu_decl.backends.databricks.workspace import Workspace, Workspaces
from sgpu_decl.backends.remote.attempts import RemoteAttempts
from sgpu_decl.backends.remote.launches import RemoteLaunches
from sgpu_decl.backends.remote.remote_status import RemoteStatus
from sgpu_decl.errors import BackendError
from sgpu_decl.model.attempt import AttemptRef, AttemptState
from sgpu_decl.model.attempt_view import AttemptView
from sgpu_decl.model.launch import LaunchRecord


class DatabricksAttempts(RemoteAttempts):
    """Markers have the id of the run that a launch became (`run_id`), when it was `submitted`, in
    seconds of the epoch by the workspace's clock, what its MLflow runs are to say (`mlflow`), and
    which task of the run the attempt is, if the run has several (`task`, `after`; see `RunPart`).
    This machine remembers that the workspace has shown the run since (`seen`), and of each MLflow
    run that was written why it does not say so, if that failed for good (`mlflow RUN`).
    """

    poll_seconds = OFTEN

    def __init__(self, launches: RemoteLaunches, workspaces: Workspaces) -> None:
        super().__init__(launches)
        self._workspaces = workspaces
        self._settled: set[AttemptRef] = set()
        self._mlflow_problems: dict[str, str] = {}  # by the id of an MLflow run

    def status(self, record: LaunchRecord, marker: Mapping[str, Any]) -> RemoteStatus:
        if "run_id" not in marker:
            staging = AttemptState.STAGING
            view = AttemptView(ref=record.ref, backend=record.backend, state=staging)
            return RemoteStatus(view=view)
        workspace, memory = self._workspace(record), self._launches.memory
        part = self._part(record, marker)
        run = part.look(workspace.run_cache)
        seen = bool(memory.get(record).get("seen"))
        if run is None:
            return missing_run_status(record, marker, workspace, seen=seen)
        if not seen:  # from now on it is deleted if it is not shown
            memory.remember(record, seen=True)
        folder, results = self._launches.folder(record), self._launches.results(record)
        status = run_status(record, run, workspace, folder, results)
        return part.explained(status, workspace.run_cache)

    def inspect(self, records: Sequence[LaunchRecord]) -> Mapping[AttemptRef, AttemptView]:
        views, by_ref = self.look(records), {record.ref: record for record in records}
        return {ref: self._described(by_ref[ref], view) for ref, view in views.items()}

    def settle(self, records: Sequence[LaunchRecord]) -> None:
        for record in records:
            if record.ref in self._settled or self._launches.memory.get(record).get("ended"):
                continue
            marker = self._launches.marker(record) or {}
            workspace = self._workspace(record)
            if "run_id" not in marker:
                continue
            run = self._part(record, marker).look(workspace.run_cache)
            if run is None:
                continue
            for run_id in mlflow_runs(run, workspace):
                self._write_metadata(record, run_id)
            if not is_settled(run, self._launches.results(record)):
                continue
            from sgpu_decl.backends.databricks.launching.submit import ended_early

            self._settled.add(record.ref)
            if ended_early(self._launches.config(record)):
                with suppress(BackendError):  # the user may not be allowed to
                    self.cancel(record)

    def cancel(self, record: LaunchRecord) -> None:
        """See `Launcher.cancel`. Raises BackendError: the workspace does not answer, or does not
        allow it."""
        marker = self._launches.marker(record) or {}
        if "run_id" not in marker or self._launches.memory.get(record).get("ended"):
            return
        workspace = self._workspace(record)
        run_id = self._part(record, marker).cancelled_id(workspace.run_cache)
        if run_id is not None:
            workspace.connection.tell_unless_gone(
                f"cancelling `{record.ref}`",
                "/api/2.2/jobs/runs/cancel",
                {"run_id": run_id},
                look="/api/2.2/jobs/runs/get",
            )

    def log(self, record: LaunchRecord, ranks: Sequence[int] | None, *, follow: bool) -> LogReader:
        from sgpu_decl.backends.databricks.watching.logs import WorkspaceLog

        marker = self._launches.marker(record) or {}
        if "run_id" not in marker:
            return NoLog()
        workspace = self._workspace(record)
        part = self._part(record, marker)
        return WorkspaceLog(record.ref, workspace, part, ranks=ranks, follow=follow)

    def _part(self, record: LaunchRecord, marker: Mapping[str, Any]) -> RunPart:
        from sgpu_decl.backends.databricks.launching.submit import retries_of

        # Of a run with one task, the platform itself says whether it goes on.
        joined = "task" in marker
        return run_part(marker, retries_of(self._launches.config(record)) if joined else 0)

    def _workspace(self, record: LaunchRecord) -> Workspace:
        return self._workspaces.of(self._launches.config(record).backend)

    def _described(self, record: LaunchRecord, view: AttemptView) -> AttemptView:
        """The view, after its metadata was written to the MLflow run; if it could not be, the links
        say so."""
        link = view.links.get("mlflow")
        if not isinstance(link, Mapping):
            return view
        problem = self._write_metadata(record, str(link["run_id"]))
        links = {**view.links, "mlflow": {**link, "undescribed": problem}}
        return replace(view, links=links) if problem else view

    def _write_metadata(self, record: LaunchRecord, run_id: str) -> str:
        """Write the metadata to an MLflow run, once; return why that failed, if so."""
        from sgpu_decl.backends.databricks.api.sdk_errors import FINAL
        from sgpu_decl.backends.databricks.launching.mlflow_metadata import write_metadata

        metadata = (self._launches.marker(record) or {}).get("mlflow")
        if not metadata:
            return ""
        memory, fact = self._launches.memory, f"mlflow {run_id}"
        problem: str | None = memory.get(record).get(fact, self._mlflow_problems.get(run_id))
        if problem is not None:
            return problem
        problem = ""
        try:
            write_metadata(self._workspace(record).connection, run_id, metadata)
        except BackendError as error:
            problem = self._mlflow_problems[run_id] = error.message
            if error.code not in FINAL:
                return problem  # the next call of the command line may get further
        memory.remember(record, **{fact: problem})
        return problem
