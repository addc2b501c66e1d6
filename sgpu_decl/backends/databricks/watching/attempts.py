"""Attempts in a workspace: its Jobs API, and what nodes brought back."""

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace

from sgpu_decl.backends.base import LogReader, NoLog
from sgpu_decl.backends.databricks.launching.launch_handles import LaunchHandles
from sgpu_decl.backends.databricks.watching.run_cache import OFTEN
from sgpu_decl.backends.databricks.watching.run_status import (
    RemoteStatus,
    mlflow_runs,
    settled,
    status_in,
    status_of,
)
from sgpu_decl.backends.launch_config import config_of
from sgpu_decl.backends.remote.attempts import LaunchPlace, RemoteAttempts, ReturnedFiles
from sgpu_decl.backends.remote.remote_results import RemoteResults
from sgpu_decl.errors import BackendError
from sgpu_decl.model.attempt import AttemptRef, AttemptState
from sgpu_decl.model.attempt_view import AttemptView
from sgpu_decl.model.launch import LaunchRecord

_LOOKS = 8  # attempts that are asked about at once


class DatabricksAttempts(RemoteAttempts):
    """The status of an attempt that has ended is kept in its handle."""

    poll_seconds = OFTEN

    def __init__(self, handles: LaunchHandles) -> None:
        self._handles = handles
        self._looks = ThreadPoolExecutor(_LOOKS, thread_name_prefix="look")
        self._settled: set[AttemptRef] = set()
        self._mlflow_problems: dict[str, str] = {}  # by the id of an MLflow run; see `LaunchHandle`

    def close(self) -> None:
        """End the threads that ask about attempts; a request that is under way is not waited
        for."""
        self._looks.shutdown(wait=False, cancel_futures=True)

    def look(self, records: Sequence[LaunchRecord]) -> Mapping[AttemptRef, AttemptView]:
        # Each may take requests, so several are asked about at once.
        statuses = self._looks.map(self._status, records)
        return {
            record.ref: status.view
            for record, status in zip(records, statuses, strict=True)
            if status is not None
        }

    def inspect(self, records: Sequence[LaunchRecord]) -> Mapping[AttemptRef, AttemptView]:
        views, by_ref = self.look(records), {record.ref: record for record in records}
        return {ref: self._described(by_ref[ref], view) for ref, view in views.items()}

    def settle(self, records: Sequence[LaunchRecord]) -> None:
        for record in records:
            ref, handle = record.ref, self._handles.of(record)
            if handle is None or handle.run_id is None or handle.ended or ref in self._settled:
                continue
            workspace = self._handles.workspace(handle)
            for run_id in mlflow_runs(handle, workspace):
                self._write_metadata(record, run_id)
            if not settled(handle, workspace, self._handles.folder(ref)):
                continue
            from sgpu_decl.backends.databricks.launching.submit import ended_early

            self._settled.add(ref)
            if ended_early(config_of(ref, record.inputs)):
                with suppress(BackendError):  # the user may not be allowed to
                    self._handles.cancel(record)

    def place(self, record: LaunchRecord) -> LaunchPlace | None:
        handle = self._handles.of(record)
        if handle is None:
            return None
        return LaunchPlace(self._handles.workspace(handle).area, handle.folder)

    def returned_files(self, record: LaunchRecord) -> ReturnedFiles | None:
        place, status = self.place(record), self._status(record)
        if place is None or status is None or status.brought is None:
            return None
        folder = self._handles.folder(record.ref)
        results = RemoteResults(place.area.files, place.folder, folder)
        return ReturnedFiles(results, status.brought, status.view)

    def forget(self, record: LaunchRecord) -> None:
        self._handles.forget(record.ref)

    def log(self, record: LaunchRecord, ranks: Sequence[int] | None, *, follow: bool) -> LogReader:
        from sgpu_decl.backends.databricks.watching.logs import WorkspaceLog

        handle = self._handles.of(record)
        if handle is None or handle.run_id is None:
            return NoLog()
        workspace = self._handles.workspace(handle)
        return WorkspaceLog(record.ref, workspace, handle.run_id, ranks=ranks, follow=follow)

    def _status(self, record: LaunchRecord) -> RemoteStatus | None:
        handle = self._handles.of(record)
        if handle is None:
            return None
        if handle.ended:
            return status_in(record, handle.ended)
        if handle.run_id is None:
            staging = AttemptState.STAGING
            return RemoteStatus(
                view=AttemptView(ref=record.ref, backend=record.backend, state=staging)
            )
        workspace, folder = self._handles.workspace(handle), self._handles.folder(record.ref)
        status = status_of(record, handle, workspace, folder)
        if status.final:
            self._handles.write(record.ref, replace(handle, ended=status.to_json()))
        elif status.shown and not handle.seen:  # from now on it is deleted if it is not shown
            self._handles.write(record.ref, replace(handle, seen=True))
        return status

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

        handle = self._handles.of(record)
        if handle is None or not handle.mlflow:
            return ""
        problem = handle.mlflow_problems.get(run_id, self._mlflow_problems.get(run_id))
        if problem is not None:
            return problem
        problem = ""
        try:
            write_metadata(self._handles.workspace(handle).connection, run_id, handle.mlflow)
        except BackendError as error:
            problem = self._mlflow_problems[run_id] = error.message
            if error.code not in FINAL:
                return problem  # the next call of the command line may get further
        problems = {**handle.mlflow_problems, run_id: problem}
        self._handles.write(record.ref, replace(handle, mlflow_problems=problems))
        return problem
