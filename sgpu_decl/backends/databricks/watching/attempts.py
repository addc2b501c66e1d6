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

__all__ = ["DatabricksAttempts"]

_LOOKS = 8  # attempts that are asked about at once


class DatabricksAttempts(RemoteAttempts):
    """What was learned of an attempt that has ended is kept in its handle."""

    poll_seconds = OFTEN

    def __init__(self, handles: LaunchHandles) -> None:
        self._handles = handles
        self._looks = ThreadPoolExecutor(_LOOKS, thread_name_prefix="look")
        self._settled: set[AttemptRef] = set()
        self._undescribed: dict[str, str] = {}  # MLflow runs, and why they could not be told

    def close(self) -> None:
        """End the threads that ask about attempts; a request that is under way is not waited
        for."""
        self._looks.shutdown(wait=False, cancel_futures=True)

    def look(self, records: Sequence[LaunchRecord]) -> Mapping[AttemptRef, AttemptView]:
        return {ref: found.view for ref, found in self._statuses(records).items()}

    def inspect(self, records: Sequence[LaunchRecord]) -> Mapping[AttemptRef, AttemptView]:
        views = self.look(records)
        return {
            record.ref: self._tracked(record, views[record.ref])
            for record in records
            if record.ref in views
        }

    def settle(self, records: Sequence[LaunchRecord]) -> None:
        for record in records:
            ref, handle = record.ref, self._handles.of(record)
            if handle is None or handle.run_id is None or handle.ended or ref in self._settled:
                continue
            workspace = self._handles.workspace(handle)
            for run_id in mlflow_runs(handle, workspace):
                self._tell_mlflow(record, run_id)
            if not settled(handle, workspace, self._handles.folder(ref)):
                continue
            from sgpu_decl.backends.databricks.launching.submit import ended_early

            self._settled.add(ref)
            if ended_early(config_of(ref, record.inputs)):
                with suppress(BackendError):  # whoever follows may not be allowed to
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
        found = RemoteResults(place.area.files, place.folder, folder)
        return ReturnedFiles(found, status.brought, status.view)

    def forget(self, record: LaunchRecord) -> None:
        self._handles.forget(record.ref)

    def log(self, record: LaunchRecord, ranks: Sequence[int] | None, *, follow: bool) -> LogReader:
        from sgpu_decl.backends.databricks.watching.logs import WorkspaceLog

        handle = self._handles.of(record)
        if handle is None or handle.run_id is None:
            return NoLog()
        run_id, run_cache = handle.run_id, self._handles.workspace(handle).run_cache
        return WorkspaceLog(
            record.ref,
            self._handles.workspace(handle).connection,
            lambda: run_cache.run(run_id),
            ranks=ranks,
            follow=follow,
            output=run_cache.output,
        )

    def _statuses(self, records: Sequence[LaunchRecord]) -> dict[AttemptRef, RemoteStatus]:
        """Those that are known. Each may take requests, so several are asked about at once."""
        found = self._looks.map(self._status, records)
        return {item.ref: status for item, status in zip(records, found, strict=True) if status}

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
        return status

    def _tracked(self, record: LaunchRecord, view: AttemptView) -> AttemptView:
        """An attempt, after its MLflow run was told what it is the run of; where it could not be
        told, its links say so."""
        tracked = view.links.get("mlflow")
        if not isinstance(tracked, Mapping):
            return view
        problem = self._tell_mlflow(record, str(tracked["run_id"]))
        told = {**view.links, "mlflow": {**tracked, "undescribed": problem}}
        return replace(view, links=told) if problem else view

    def _tell_mlflow(self, record: LaunchRecord, run_id: str) -> str:
        """Write what an MLflow run is to say, once; return why that could not be, if so."""
        from sgpu_decl.backends.databricks.api.sdk_errors import FINAL
        from sgpu_decl.backends.databricks.launching.mlflow_metadata import write_metadata

        handle = self._handles.of(record)
        if handle is None or not handle.mlflow:
            return ""
        known = handle.mlflow_problems.get(run_id, self._undescribed.get(run_id))
        if known is not None:
            return known
        problem = ""
        try:
            write_metadata(self._handles.workspace(handle).connection, run_id, handle.mlflow)
        except BackendError as error:
            problem = self._undescribed[run_id] = error.message
            if error.code not in FINAL:
                return problem  # the next call of the command line may get further
        problems = {**handle.mlflow_problems, run_id: problem}
        self._handles.write(record.ref, replace(handle, mlflow_problems=problems))
        return problem
