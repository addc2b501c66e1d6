"""The status of an attempt, from what the platform says of its run and what nodes brought back."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from sgpu_decl.backends.databricks.launching.experiment import experiment_name
from sgpu_decl.backends.databricks.planning.catalog import forget_kind
from sgpu_decl.backends.databricks.watching.termination import (
    attempt_number,
    has_ended,
    state_of,
    termination_of,
)
from sgpu_decl.backends.databricks.workspace import Workspace
from sgpu_decl.backends.remote.watching.remote_results import RemoteResults
from sgpu_decl.backends.remote.watching.remote_status import (
    RemoteStatus,
    ended_status,
    failed_for_good,
    failed_view,
)
from sgpu_decl.model.attempt import AttemptState, FailureClass
from sgpu_decl.model.attempt_view import AttemptView
from sgpu_decl.model.jsonable import Json
from sgpu_decl.model.launch import LaunchRecord

SETTLING = 60.0  # seconds after which a workspace shows a new run or file everywhere


def run_status(
    record: LaunchRecord,
    run: Mapping[str, Any],
    workspace: Workspace,
    folder: str,
    results: RemoteResults,
    retry: Mapping[str, Any],
) -> RemoteStatus:
    """Return how a launch stands that became a run.

    Args:
        run: the run, as the Jobs API shows it.
        folder: the launch folder.
        retry: when its ranks start again (`agent.retry_rule`).
    """
    links: dict[str, Json] = {"folder": folder}
    if run.get("run_page_url"):
        links["run"] = str(run["run_page_url"])
    state = state_of(run)
    view = AttemptView(
        ref=record.ref,
        backend=record.backend,
        state=state or termination_of(run).state,
        started_at=_started(run, workspace.connection.ahead),
        restart=max(map(attempt_number, run.get("tasks") or ()), default=0),
        links=links,
        waiting_for="gpus" if state is AttemptState.QUEUED else None,
    )
    if state:
        return RemoteStatus(view=view)
    return _ended(record, view, run, workspace, results, retry)


def missing_run_status(
    record: LaunchRecord, marker: Mapping[str, Any], workspace: Workspace, *, seen: bool
) -> RemoteStatus:
    """Return how a launch stands whose run the workspace does not show.

    Args:
        seen: whether the workspace has shown it before.
    """
    view = AttemptView(ref=record.ref, backend=record.backend, state=AttemptState.QUEUED)
    if not seen and workspace.connection.now() - marker["submitted"] < SETTLING:
        return RemoteStatus(view=view)
    host = workspace.connection.host
    words = f"run {marker['run_id']} is no longer in {host}: somebody deleted it there"
    lost = replace(view, state=AttemptState.LOST)
    return RemoteStatus(view=failed_view(lost, FailureClass.PLATFORM, words))


def _ended(
    record: LaunchRecord,
    view: AttemptView,
    run: Mapping[str, Any],
    workspace: Workspace,
    results: RemoteResults,
    retry: Mapping[str, Any],
) -> RemoteStatus:
    ending, connection = termination_of(run), workspace.connection
    newest = _newest(run)
    task = newest.get("ai_runtime_task") or {}
    tracking = workspace.run_cache.output(int(newest["run_id"])) if newest else {}
    waited = ending.failure is FailureClass.UPSTREAM_FAILED
    if ending.failure is not None and not ending.ran and not waited:
        # One reason may be that the folder of its experiment was deleted after sgpu saw it.
        forget_kind(connection, str(task.get("mlflow_experiment_directory")))
    ended_ms = int(run.get("end_time") or 0)
    view = replace(
        view,
        ended_at=_moment(ended_ms, connection.ahead),
        links={**view.links, **_mlflow_link(tracking, task, connection.host)},
    )
    return ended_status(
        record,
        view,
        ending,
        results,
        retry=retry,
        # An earlier attempt may have got nodes, and what failed by itself may not say that it ran.
        nodes=ending.ran or len(run["tasks"]) > 1 or ending.failure is FailureClass.PLATFORM,
        complete=connection.now() - ended_ms / 1000 > SETTLING,
    )


def is_settled(run: Mapping[str, Any], results: RemoteResults, retry: Mapping[str, Any]) -> bool:
    """Whether a run that goes on has nothing left to do: the platform is about to bring nodes on
    which no rank would start."""
    again = state_of(run) is not None and any(map(has_ended, run.get("tasks") or ()))
    return again and failed_for_good(results, retry)


def mlflow_runs(run: Mapping[str, Any], workspace: Workspace) -> list[str]:
    """The MLflow runs of the attempts of the platform that have nodes or had some, as far as it
    names them yet."""
    task_run_ids = [int(task["run_id"]) for task in run.get("tasks") or () if _began(task)]
    ids = (
        workspace.run_cache.tracked(task_run_id).get("mlflow_run_id")
        for task_run_id in task_run_ids
    )
    return [str(id_) for id_ in ids if id_]


def mlflow_link(run: Mapping[str, Any], workspace: Workspace) -> dict[str, Json]:
    """The link to the MLflow run of the newest attempt of the platform, if that has nodes or had
    some, and the platform names it yet."""
    newest = _newest(run)
    if not _began(newest):
        return {}
    tracking = workspace.run_cache.tracked(int(newest["run_id"]))
    return _mlflow_link(tracking, newest.get("ai_runtime_task") or {}, workspace.connection.host)


def _newest(run: Mapping[str, Any]) -> Mapping[str, Any]:
    return max(run.get("tasks") or (), key=attempt_number, default={})


def _began(task: Mapping[str, Any]) -> bool:
    life_cycle = str((task.get("state") or {}).get("life_cycle_state"))
    return bool(task.get("execution_duration")) or life_cycle in ("RUNNING", "TERMINATING")


def _mlflow_link(
    tracking: Mapping[str, Any], task: Mapping[str, Any], host: str
) -> dict[str, Json]:
    """Where MLflow has an attempt of the platform's, which ran an `ai_runtime_task`."""
    experiment, run = tracking.get("mlflow_experiment_id"), tracking.get("mlflow_run_id")
    if not experiment or not run:
        return {}
    link: dict[str, Json] = {
        "experiment_id": str(experiment),
        "run_id": str(run),
        "url": f"{host}/ml/experiments/{experiment}/runs/{run}",
    }
    name = experiment_name(task)
    return {"mlflow": {**link, "experiment": name} if name else link}


def _started(run: Mapping[str, Any], ahead: float) -> datetime | None:
    """When the first command began; not when it was submitted."""
    starts = [
        int(task.get("start_time") or 0) + int(task.get("setup_duration") or 0)
        for task in run.get("tasks") or ()
        if _began(task)
    ]
    return _moment(min(starts), ahead) if starts else None


def _moment(ms: int, ahead: float) -> datetime | None:
    """A moment by this machine's clock, which all other times of a run are by."""
    return datetime.fromtimestamp(ms / 1000 - ahead, UTC) if ms else None
