"""The truth about an attempt: what the platform says of its run, and what nodes brought back."""

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from types import MappingProxyType
from typing import Any

from sgpu_decl.backends.databricks.endings import ending_of, state_of
from sgpu_decl.backends.databricks.handle import Handle
from sgpu_decl.backends.databricks.returned import Returned
from sgpu_decl.backends.databricks.workspace import Workspace
from sgpu_decl.model.attempt import AttemptRef, AttemptState, AttemptStatus, FailureClass
from sgpu_decl.model.jsonable import Json

__all__ = ["Described", "describe", "status_of"]

Described = dict[str, Json]

SETTLING = 60.0  # seconds for which a workspace may not show everywhere what it was told


def describe(
    ref: AttemptRef, handle: Handle, workspace: Workspace, folder: Path
) -> tuple[Described, bool]:
    """Return the `status` object of a launched attempt, and whether it is final.

    Args:
        folder: the attempt's folder on this machine.
    """
    run_id = handle.run_id
    assert run_id is not None  # noqa: S101  launched
    run = workspace.watched.run(run_id)
    if run is None:
        if workspace.connection.now() - handle.submitted < SETTLING:
            return _shape(ref, AttemptState.QUEUED), False
        return _deleted(ref, run_id, handle), False
    links = _links(run, handle)
    ahead = workspace.connection.ahead
    state = state_of(run)
    if state is not None:
        shape = _shape(ref, state, started_at=_started(run, ahead), links=links)
        waits = state is AttemptState.QUEUED
        return ({**shape, "waiting_for": "gpus"} if waits else shape), False
    return _ended(ref, run, handle, workspace, folder, links)


def status_of(ref: AttemptRef, described: Mapping[str, Any]) -> AttemptStatus:
    """The part of a `status` object that planning counts on."""
    failure = described.get("class")
    exit_code = described.get("exit_code")
    return AttemptStatus(
        ref=ref,
        state=AttemptState(described["state"]),
        started_at=_time(described.get("started_at")),
        ended_at=_time(described.get("ended_at")),
        exit_code=exit_code if isinstance(exit_code, int) else None,
        failure=FailureClass(failure) if failure else None,
    )


def _ended(
    ref: AttemptRef,
    run: Mapping[str, Any],
    handle: Handle,
    workspace: Workspace,
    folder: Path,
    links: dict[str, Json],
) -> tuple[Described, bool]:
    ending = ending_of(run)
    newest: Mapping[str, Any] = max(
        run["tasks"], key=lambda it: int(it.get("attempt_number") or 0), default={}
    )
    tracked = workspace.watched.output(int(newest["run_id"])) if newest else {}
    links |= _tracking(tracked, handle)
    returned = Returned(workspace.files, handle.folder, folder)
    attempt = returned.newest() if ending.ran else None
    outcome = returned.outcome(attempt) if attempt is not None else None
    ended_ms = int(run.get("end_time") or 0)
    final = (
        outcome is not None
        or not ending.ran
        or workspace.connection.now() - ended_ms / 1000 > SETTLING
    )  # nodes may have written what is not seen yet
    shape = _shape(
        ref,
        ending.state,
        started_at=_started(run, workspace.connection.ahead),
        ended_at=_text(ended_ms, workspace.connection.ahead),
        failure=ending.failure,
        links=links,
    )
    if ending.failure is not None:
        shape["first_cause"] = _cause(ending.failure, ending.message)
    if outcome is None:
        if ending.ran and ending.failure is FailureClass.EXIT_CODE:
            words = f"{ending.message.rstrip('.')}; and it left nothing in `{handle.folder}`: see "
            words += "`sgpu logs --rank all`, and whether there is room"
            shape["first_cause"] = _cause(ending.failure, words)
        return shape, final
    shape |= {
        "ranks": outcome.get("ranks") or [],
        "restart": outcome.get("restart") or 0,
        "brought": attempt,
    }
    # The agent knows more of what happened on the nodes, unless the platform took them away.
    if ending.failure in (None, FailureClass.EXIT_CODE) and ending.state is not _CANCELLED:
        shape |= {
            "state": outcome["state"],
            "class": outcome.get("class"),
            "exit_code": outcome.get("exit_code"),
            "first_cause": outcome.get("first_cause"),
        }
    return shape, final


_CANCELLED = AttemptState.CANCELLED


def _deleted(ref: AttemptRef, run_id: int, handle: Handle) -> Described:
    words = f"run {run_id} is no longer in {handle.host}: somebody deleted it there"
    shape = _shape(ref, AttemptState.LOST, failure=FailureClass.PLATFORM)
    return {**shape, "first_cause": _cause(FailureClass.PLATFORM, words)}


def _shape(
    ref: AttemptRef,
    state: AttemptState,
    *,
    started_at: str | None = None,
    ended_at: str | None = None,
    failure: FailureClass | None = None,
    links: dict[str, Json] | None = None,
) -> Described:
    return {
        "attempt": ref.number,
        "state": str(state),
        "backend": "databricks",
        "started_at": started_at,
        "ended_at": ended_at,
        "exit_code": 0 if state is AttemptState.SUCCEEDED else None,
        "ranks": [],
        "first_cause": None,
        "links": links or {},
        "class": str(failure) if failure else None,
    }


_WAY_OUT: Mapping[FailureClass, str] = MappingProxyType(
    {
        FailureClass.CAPACITY: "apply again later, or use another `type`, fewer `gpus` or a `pool`",
        FailureClass.NODE_LOST: "apply again, or let the platform bring new nodes by itself with "
        "`retry`",
    }
)


def _cause(failure: FailureClass, message: str) -> dict[str, Json]:
    said = message or f"the platform says no more than `{failure}`"
    way_out = _WAY_OUT.get(failure)
    return {
        "rank": None,
        "class": str(failure),
        "summary": f"{said.rstrip('.')}; {way_out}" if way_out else said,
        "traceback": None,
        "simultaneous": [],
    }


def _links(run: Mapping[str, Any], handle: Handle) -> dict[str, Json]:
    links: dict[str, Json] = {"folder": handle.folder}
    if run.get("run_page_url"):
        links["run"] = str(run["run_page_url"])
    return links


def _tracking(tracked: Mapping[str, Any], handle: Handle) -> dict[str, Json]:
    experiment, run = tracked.get("mlflow_experiment_id"), tracked.get("mlflow_run_id")
    if not experiment or not run:
        return {}
    url = f"{handle.host}/ml/experiments/{experiment}/runs/{run}"
    return {"mlflow": {"experiment_id": str(experiment), "run_id": str(run), "url": url}}


def _started(run: Mapping[str, Any], ahead: float) -> str | None:
    """When the first command began; not when it was submitted."""
    begun = [
        int(it.get("start_time") or 0) + int(it.get("setup_duration") or 0)
        for it in run.get("tasks") or ()
        if it.get("execution_duration")
        or str((it.get("state") or {}).get("life_cycle_state")) in ("RUNNING", "TERMINATING")
    ]
    return _text(min(begun), ahead) if begun else None


def _text(ms: int, ahead: float) -> str | None:
    """A moment by this machine's clock, which all other times of a run are by."""
    if not ms:
        return None
    moment = datetime.fromtimestamp(ms / 1000 - ahead, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _time(text: object) -> datetime | None:
    return datetime.fromisoformat(text) if isinstance(text, str) else None
