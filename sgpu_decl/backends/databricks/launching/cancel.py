"""The request that a launch be cancelled."""

from sgpu_decl.backends.databricks.launching.launches import Launches
from sgpu_decl.model.launch import LaunchRecord

__all__ = ["cancel_launch"]


def cancel_launch(launches: Launches, record: LaunchRecord) -> None:
    """Ask the platform to end the run of a launch; harmless when it has ended.

    Raises:
        BackendError: the workspace does not answer, or does not allow it.
    """
    handle = launches.of(record)
    if handle is None or handle.run_id is None or handle.ended:
        return
    from sgpu_decl.backends.databricks.api.sdk_errors import Rejected
    from sgpu_decl.backends.remote.files import RemoteMissing

    doing, run = f"cancelling `{record.ref}`", handle.run_id
    connection = launches.workspace(handle).connection
    try:
        connection.tell(doing, "/api/2.2/jobs/runs/cancel", {"run_id": run})
    except RemoteMissing:
        return  # somebody deleted it
    except Rejected:
        # What is refused for a run that is gone is no refusal.
        try:
            connection.ask(doing, "/api/2.2/jobs/runs/get", run_id=run)
        except RemoteMissing:
            return
        raise
