"""MLflow runs that trackers on nodes make: what a status shows of them, and which of them stay
open."""

from contextlib import suppress
from dataclasses import replace

from sgpu_decl.backends.remote.launches import RemoteLaunches
from sgpu_decl.backends.remote.remote_status import RemoteStatus
from sgpu_decl.model.attempt_view import status_fields
from sgpu_decl.model.launch import LaunchRecord
from sgpu_decl.tracking.mlflow_status import outcome
from sgpu_decl.tracking.open_runs import OpenRun

__all__ = ["note_open_run", "with_tracking"]


def with_tracking(status: RemoteStatus) -> RemoteStatus:
    """Return a status whose links name the MLflow run."""
    if not status.tracked:
        return status
    links = {**status.view.links, "mlflow": dict(status.tracked)}
    return replace(status, view=replace(status.view, links=links))


def note_open_run(launches: RemoteLaunches, record: LaunchRecord, status: RemoteStatus) -> None:
    """Have the next command close the MLflow run of an attempt that has ended, if its tracker could
    not: the server did not answer, or the node was lost."""
    tracked = status.tracked or {}
    run_id, uri = tracked.get("run_id"), tracked.get("tracking_uri")
    if not (isinstance(run_id, str) and isinstance(uri, str)):
        return
    results, attempt = launches.results(record), status.brought
    report = results.report(attempt, 0) if attempt is not None else {}
    if report and not report["open_run"]:
        return
    failure = str(status.view.failure) if status.view.failure else None
    with (
        suppress(OSError),  # a project that cannot be written: the run stays open
        OpenRun.begin(launches.home, record.token, launches.kept(record)) as entry,
    ):
        entry.note_created(run_id, uri)
        entry.note_end(outcome({**status_fields(status.view), "class": failure}))
