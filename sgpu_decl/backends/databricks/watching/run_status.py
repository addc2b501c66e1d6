"""The status of an attempt, from what the platform says of its run and what nodes brought back."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from types import MappingProxyType
from typing import Any

from sgpu_decl.backends.databricks.launching.experiment import experiment_name
from sgpu_decl.backends.databricks.launching.launch_handles import LaunchHandle
from sgpu_decl.backends.databricks.planning.catalog import forget_kind
from sgpu_decl.backends.databricks.watching.termination import (
    Termination,
    attempt_number,
    has_ended,
    state_of,
    termination_of,
)
from sgpu_decl.backends.databricks.workspace import Workspace
from sgpu_decl.backends.remote.remote_results import RemoteResults
from sgpu_decl.model.attempt import AttemptState, Blame, FailureClass, blame_of
from sgpu_decl.model.attempt_details import FirstCause
from sgpu_decl.model.attempt_view import AttemptView, status_fields, view_in
from sgpu_decl.model.jsonable import Json
from sgpu_decl.model.launch import LaunchRecord

SETTLING = 60.0  # seconds after which a workspace shows a new run or file everywhere


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteStatus:
    """How an attempt stands. `shown` says that the workspace shows its run. `brought` is the newest
    attempt of the platform whose nodes brought something back. What is `final` will not change any
    more."""

    view: AttemptView
    shown: bool = True
    brought: int | None = None
    final: bool = False

    def to_json(self) -> dict[str, Json]:
        """For the handle; see `status_in`."""
        failure = str(self.view.failure) if self.view.failure else None
        return {**status_fields(self.view), "class": failure, "brought": self.brought}


def status_in(record: LaunchRecord, ended: Mapping[str, Any]) -> RemoteStatus:
    """The status that a handle keeps of an attempt that has ended."""
    return RemoteStatus(view=view_in(record, ended), brought=ended.get("brought"), final=True)


def status_of(
    record: LaunchRecord, handle: LaunchHandle, workspace: Workspace, folder: Path
) -> RemoteStatus:
    """Return how a launched attempt stands.

    Args:
        folder: the attempt's folder on this machine.
    """
    assert handle.run_id is not None  # noqa: S101  launched
    run = workspace.run_cache.run(handle.run_id)
    view = AttemptView(ref=record.ref, backend=record.backend, state=AttemptState.QUEUED)
    if run is None:
        age = workspace.connection.now() - handle.submitted
        if age < SETTLING and not handle.seen:
            return RemoteStatus(view=view, shown=False)
        words = f"run {handle.run_id} is no longer in {handle.host}: somebody deleted it there"
        lost = replace(view, state=AttemptState.LOST)
        return RemoteStatus(view=_failed(lost, FailureClass.PLATFORM, words), shown=False)
    links: dict[str, Json] = {"folder": handle.folder}
    if run.get("run_page_url"):
        links["run"] = str(run["run_page_url"])
    view = replace(
        view,
        state=state_of(run) or termination_of(run).state,
        started_at=_started(run, workspace.connection.ahead),
        restart=max(map(attempt_number, run.get("tasks") or ()), default=0),
        links=links,
    )
    if view.state.active:
        waits = view.state is AttemptState.QUEUED
        return RemoteStatus(view=replace(view, waiting_for="gpus" if waits else None))
    return _ended(record, view, run, handle, workspace, folder)


def _ended(
    record: LaunchRecord,
    view: AttemptView,
    run: Mapping[str, Any],
    handle: LaunchHandle,
    workspace: Workspace,
    folder: Path,
) -> RemoteStatus:
    ending = termination_of(run)
    newest: Mapping[str, Any] = max(run["tasks"], key=attempt_number, default={})
    task = newest.get("ai_runtime_task") or {}
    tracking = workspace.run_cache.output(int(newest["run_id"])) if newest else {}
    if ending.failure is not None and not ending.ran:
        # One reason may be that the folder of its experiment was deleted after sgpu saw it.
        forget_kind(workspace.connection, str(task.get("mlflow_experiment_directory")))
    results = RemoteResults(workspace.files, handle.folder, folder)
    # An earlier attempt may have got nodes, and what failed by itself may not say that it ran.
    ran = ending.ran or len(run["tasks"]) > 1 or ending.failure is FailureClass.PLATFORM
    attempt = results.newest() if ran else None
    outcome = results.outcome(attempt) if attempt is not None else None
    counts = outcome is not None and _counts(outcome, attempt or 0, ending, results)
    ended_ms = int(run.get("end_time") or 0)
    final = (
        counts
        or not ran
        or (outcome is not None and not _settles(outcome))
        or workspace.connection.now() - ended_ms / 1000 > SETTLING
    )  # nodes may have written what is not seen yet
    view = replace(
        view,
        ended_at=_moment(ended_ms, workspace.connection.ahead),
        exit_code=0 if ending.state is AttemptState.SUCCEEDED else None,
        links={**view.links, **_mlflow_link(tracking, task, handle.host)},
    )
    if ending.failure is not None:
        view = _failed(view, ending.failure, ending.message)
    if outcome is not None:
        from_nodes = view_in(record, outcome)
        names = (*_FROM_NODES, *(_OF_THE_ENDING if counts else ()))
        view = replace(view, **{name: getattr(from_nodes, name) for name in names})
        return RemoteStatus(view=view, brought=attempt, final=final)
    if ending.ran and ending.failure is FailureClass.EXIT_CODE:
        words = f"{ending.message.rstrip('.')}; and it left nothing in `{handle.folder}`: see "
        words += "`sgpu logs --rank all`, and whether there is room"
        view = _failed(view, ending.failure, words)
    return RemoteStatus(view=view, final=final)


_FROM_NODES = ("ranks", "restart", "restarts", "working_files")
_OF_THE_ENDING = ("state", "failure", "exit_code", "first_cause")


def _counts(
    outcome: Mapping[str, Any], attempt: int, ending: Termination, results: RemoteResults
) -> bool:
    """Whether the agent's word on how it ended counts for more than the platform's.

    The agent knows more of what happened on the nodes. The platform has codes for its own failures
    and gives them to failures of the user's code too, and it may end a run, or fail to start it
    again, after the user's code has failed. Where it took the nodes away, its own word counts.
    """
    cancelled = ending.state is AttemptState.CANCELLED
    if ending.failure in (None, FailureClass.EXIT_CODE) and not cancelled:
        return True
    if not _settles(outcome):
        return False
    if outcome["state"] != AttemptState.SUCCEEDED:
        return bool(results.done(attempt, 0))
    nodes = {0, *(int(rank.get("node_rank") or 0) for rank in outcome.get("ranks") or ())}
    return all(results.done(attempt, node).get("exit_code") == 0 for node in sorted(nodes))


def settled(handle: LaunchHandle, workspace: Workspace, folder: Path) -> bool:
    """Whether a run that goes on has nothing left to do: the platform is about to start again what
    failed by its own fault."""
    run = workspace.run_cache.run(handle.run_id or 0)
    if run is None or state_of(run) is None or not any(map(has_ended, run.get("tasks") or ())):
        return False
    results = RemoteResults(workspace.files, handle.folder, folder)
    attempt = results.newest()
    outcome = results.outcome(attempt) if attempt is not None else None
    return (
        outcome is not None
        and outcome["state"] == AttemptState.FAILED
        and _settles(outcome)
        and bool(results.done(attempt or 0, 0))
    )


def mlflow_runs(handle: LaunchHandle, workspace: Workspace) -> list[str]:
    """The MLflow runs of the attempts of the platform that have nodes or had some, as far as it
    names them yet."""
    run = workspace.run_cache.run(handle.run_id or 0) or {}
    task_run_ids = [int(task["run_id"]) for task in run.get("tasks") or () if _began(task)]
    ids = (
        workspace.run_cache.tracked(task_run_id).get("mlflow_run_id")
        for task_run_id in task_run_ids
    )
    return [str(id_) for id_ in ids if id_]


def _began(task: Mapping[str, Any]) -> bool:
    life_cycle = str((task.get("state") or {}).get("life_cycle_state"))
    return bool(task.get("execution_duration")) or life_cycle in ("RUNNING", "TERMINATING")


def _settles(outcome: Mapping[str, Any]) -> bool:
    """Whether no further attempt can change how a run ended: it succeeded, or its own code
    failed."""
    if outcome["state"] == AttemptState.SUCCEEDED:
        return True
    failure = outcome.get("class")
    return failure is not None and blame_of(FailureClass(failure)) is Blame.ERROR


_NEXT_STEPS: Mapping[FailureClass, str] = MappingProxyType(
    {
        FailureClass.CAPACITY: "apply again later, or use another `type`, fewer `gpus` or a `pool`",
        FailureClass.NODE_LOST: "apply again, or let the platform bring new nodes by itself with "
        "`retry`",
    }
)


def _failed(view: AttemptView, failure: FailureClass, message: str) -> AttemptView:
    summary = message or f"the platform says no more than `{failure}`"
    if failure in _NEXT_STEPS:
        summary = f"{summary.rstrip('.')}; {_NEXT_STEPS[failure]}"
    cause = FirstCause(failure=str(failure), summary=summary)
    return replace(view, failure=failure, first_cause=cause)


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
