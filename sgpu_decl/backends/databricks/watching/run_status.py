"""The truth about an attempt: what the platform says of its run, and what nodes brought back."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from types import MappingProxyType
from typing import Any

from sgpu_decl.backends.databricks.launching.experiment import experiment_name
from sgpu_decl.backends.databricks.launching.launch_handles import LaunchHandle
from sgpu_decl.backends.databricks.planning.catalog import forget_kind
from sgpu_decl.backends.databricks.watching.termination import Termination, state_of, termination_of
from sgpu_decl.backends.databricks.workspace import Workspace
from sgpu_decl.backends.remote.remote_results import RemoteResults
from sgpu_decl.model.attempt import (
    AttemptState,
    Blame,
    FailureClass,
    blame_of,
)
from sgpu_decl.model.attempt_details import FirstCause
from sgpu_decl.model.attempt_view import AttemptView, status_fields, view_in
from sgpu_decl.model.jsonable import Json
from sgpu_decl.model.launch import LaunchRecord

__all__ = ["RemoteStatus", "mlflow_runs", "settled", "status_in", "status_of"]

SETTLING = 60.0  # seconds for which a workspace may not show everywhere what it was told


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteStatus:
    """How an attempt stands. `brought` is the newest attempt of the platform whose nodes brought
    something back. What is `final` will not change any more."""

    view: AttemptView
    brought: int | None = None
    final: bool = False

    def to_json(self) -> dict[str, Json]:
        """For the handle; see `status_in`."""
        failure = str(self.view.failure) if self.view.failure else None
        return {**status_fields(self.view), "class": failure, "brought": self.brought}


def status_in(record: LaunchRecord, kept: Mapping[str, Any]) -> RemoteStatus:
    """What a handle keeps of an attempt that has ended."""
    return RemoteStatus(view=view_in(record, kept), brought=kept.get("brought"), final=True)


def status_of(
    record: LaunchRecord, handle: LaunchHandle, workspace: Workspace, folder: Path
) -> RemoteStatus:
    """Return how a launched attempt stands.

    Args:
        folder: the attempt's folder on this machine.
    """
    run_id = handle.run_id
    assert run_id is not None  # noqa: S101  launched
    run = workspace.run_cache.run(run_id)
    if run is None:
        if workspace.connection.now() - handle.submitted < SETTLING:
            return RemoteStatus(view=_view(record, AttemptState.QUEUED))
        words = f"run {run_id} is no longer in {handle.host}: somebody deleted it there"
        lost = _view(record, AttemptState.LOST)
        return RemoteStatus(view=_failed(lost, FailureClass.PLATFORM, words))
    ahead = workspace.connection.ahead
    view = replace(
        _view(record, state_of(run) or termination_of(run).state),
        started_at=_started(run, ahead),
        restart=_restart(run),
        links=_links(run, handle),
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
    newest: Mapping[str, Any] = max(run["tasks"], key=_attempt_number, default={})
    tracked = workspace.run_cache.output(int(newest["run_id"])) if newest else {}
    if ending.failure is not None and not ending.ran:
        # One reason may be that the folder of its experiment was deleted after sgpu saw it.
        submitted = newest.get("ai_runtime_task") or {}
        forget_kind(workspace.connection, str(submitted.get("mlflow_experiment_directory")))
    returned = RemoteResults(workspace.files, handle.folder, folder)
    # An earlier attempt may have got nodes, and what failed by itself may not say that it ran.
    ran = ending.ran or len(run["tasks"]) > 1 or ending.failure is FailureClass.PLATFORM
    attempt = returned.newest() if ran else None
    outcome = returned.outcome(attempt) if attempt is not None else None
    counts = outcome is not None and _counts(outcome, attempt or 0, ending, returned)
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
        links={**view.links, **_tracking(tracked, newest, handle)},
    )
    if ending.failure is not None:
        view = _failed(view, ending.failure, ending.message)
    if outcome is None:
        if ending.ran and ending.failure is FailureClass.EXIT_CODE:
            words = f"{ending.message.rstrip('.')}; and it left nothing in `{handle.folder}`: see "
            words += "`sgpu logs --rank all`, and whether there is room"
            view = _failed(view, ending.failure, words)
        return RemoteStatus(view=view, final=final)
    told = view_in(record, outcome)
    view = replace(
        view,
        ranks=told.ranks,
        restart=told.restart,
        restarts=told.restarts,
        working_files=told.working_files,
    )
    if counts:
        view = replace(
            view,
            state=told.state,
            failure=told.failure,
            exit_code=told.exit_code,
            first_cause=told.first_cause,
        )
    return RemoteStatus(view=view, brought=attempt, final=final)


def _counts(
    outcome: Mapping[str, Any], attempt: int, ending: Termination, returned: RemoteResults
) -> bool:
    """Whether the agent's word on how it ended counts for more than the platform's.

    The agent knows more of what happened on the nodes. The platform has codes for its own failures
    and gives them to failures of the user's code too, and it may end a run, or fail to start it
    again, after the user's code has failed. Where it took the nodes away, its own word counts.
    """
    if ending.failure in (None, FailureClass.EXIT_CODE) and ending.state is not _CANCELLED:
        return True
    if not _settles(outcome):
        return False
    if outcome["state"] != AttemptState.SUCCEEDED:
        return bool(returned.done(attempt, 0))
    nodes = {0, *(int(item.get("node_rank") or 0) for item in outcome.get("ranks") or ())}
    return all(returned.done(attempt, node).get("exit_code") == 0 for node in sorted(nodes))


def settled(handle: LaunchHandle, workspace: Workspace, folder: Path) -> bool:
    """Whether a run that goes on has nothing left to do: the platform is about to start again what
    failed by its own fault."""
    run = workspace.run_cache.run(handle.run_id or 0)
    if run is None or state_of(run) is None or not any(map(_over, run.get("tasks") or ())):
        return False
    returned = RemoteResults(workspace.files, handle.folder, folder)
    attempt = returned.newest()
    outcome = returned.outcome(attempt) if attempt is not None else None
    return (
        outcome is not None
        and outcome["state"] == AttemptState.FAILED
        and _settles(outcome)
        and bool(returned.done(attempt or 0, 0))
    )


def mlflow_runs(handle: LaunchHandle, workspace: Workspace) -> list[str]:
    """The MLflow runs of the attempts of the platform that have nodes or had some, as far as it
    names them yet."""
    run = workspace.run_cache.run(handle.run_id or 0) or {}
    begun = [int(item["run_id"]) for item in run.get("tasks") or () if _began(item)]
    found = (workspace.run_cache.tracked(item).get("mlflow_run_id") for item in begun)
    return [str(item) for item in found if item]


def _began(task: Mapping[str, Any]) -> bool:
    life_cycle = str((task.get("state") or {}).get("life_cycle_state"))
    return bool(task.get("execution_duration")) or life_cycle in ("RUNNING", "TERMINATING")


def _over(task: Mapping[str, Any]) -> bool:
    return bool((task.get("state") or {}).get("result_state"))


def _settles(outcome: Mapping[str, Any]) -> bool:
    """Whether no further attempt can change how a run ended: it succeeded, or its own code
    failed."""
    if outcome["state"] == AttemptState.SUCCEEDED:
        return True
    failure = outcome.get("class")
    return failure is not None and blame_of(FailureClass(failure)) is Blame.ERROR


_CANCELLED = AttemptState.CANCELLED


def _view(record: LaunchRecord, state: AttemptState) -> AttemptView:
    return AttemptView(ref=record.ref, backend=record.backend, state=state)


_WAY_OUT: Mapping[FailureClass, str] = MappingProxyType(
    {
        FailureClass.CAPACITY: "apply again later, or use another `type`, fewer `gpus` or a `pool`",
        FailureClass.NODE_LOST: "apply again, or let the platform bring new nodes by itself with "
        "`retry`",
    }
)


def _failed(view: AttemptView, failure: FailureClass, message: str) -> AttemptView:
    said = message or f"the platform says no more than `{failure}`"
    way_out = _WAY_OUT.get(failure)
    summary = f"{said.rstrip('.')}; {way_out}" if way_out else said
    cause = FirstCause(failure=str(failure), summary=summary)
    return replace(view, failure=failure, first_cause=cause)


def _links(run: Mapping[str, Any], handle: LaunchHandle) -> dict[str, Json]:
    links: dict[str, Json] = {"folder": handle.folder}
    if run.get("run_page_url"):
        links["run"] = str(run["run_page_url"])
    return links


def _tracking(
    tracked: Mapping[str, Any], task: Mapping[str, Any], handle: LaunchHandle
) -> dict[str, Json]:
    """Where MLflow has an attempt of the platform's, which is one `task`."""
    experiment, run = tracked.get("mlflow_experiment_id"), tracked.get("mlflow_run_id")
    if not experiment or not run:
        return {}
    found: dict[str, Json] = {
        "experiment_id": str(experiment),
        "run_id": str(run),
        "url": f"{handle.host}/ml/experiments/{experiment}/runs/{run}",
    }
    submitted = task.get("ai_runtime_task") or {}
    name = experiment_name(submitted)
    return {"mlflow": {**found, "experiment": name} if name else found}


def _attempt_number(task: Mapping[str, Any]) -> int:
    return int(task.get("attempt_number") or 0)


def _restart(run: Mapping[str, Any]) -> int:
    """How often the platform has started the run again."""
    return max(map(_attempt_number, run.get("tasks") or ()), default=0)


def _started(run: Mapping[str, Any], ahead: float) -> datetime | None:
    """When the first command began; not when it was submitted."""
    begun = [
        int(item.get("start_time") or 0) + int(item.get("setup_duration") or 0)
        for item in run.get("tasks") or ()
        if _began(item)
    ]
    return _moment(min(begun), ahead) if begun else None


def _moment(ms: int, ahead: float) -> datetime | None:
    """A moment by this machine's clock, which all other times of a run are by."""
    return datetime.fromtimestamp(ms / 1000 - ahead, UTC) if ms else None
