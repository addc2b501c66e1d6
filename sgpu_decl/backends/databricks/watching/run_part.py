"""The part of a submitted run that is one attempt: all of it, or one of its tasks (`after`)."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from sgpu_decl.agent.attempt.upstreams import listed, refusal
from sgpu_decl.backends.databricks.watching.run_cache import RunCache
from sgpu_decl.backends.databricks.watching.termination import (
    attempt_number,
    has_ended,
    state_of,
)
from sgpu_decl.backends.remote.watching.remote_status import RemoteStatus, failed_view
from sgpu_decl.model.attempt import AttemptState, FailureClass

_GOOD = frozenset({"SUCCESS", "SUCCESS_WITH_FAILURES"})
_ENDED = {"CANCELED": "cancelled"}  # else it failed, also where it was not started either


@dataclass(frozen=True, slots=True, kw_only=True)
class RunPart:
    """`task` is the key of the task; None if the attempt is all of the run. `retries` says how
    often the platform may start the task again. `after` has the names of the attempts that it waits
    for, by the keys of their tasks."""

    run_id: int
    task: str | None = None
    retries: int = 0
    after: Mapping[str, str] = field(default_factory=dict)

    def look(self, runs: RunCache) -> Mapping[str, Any] | None:
        """The part as it is now, in the shape of a run; None where the workspace has no such
        run."""
        run = runs.run(self.run_id)
        return run if run is None or self.task is None else self._of_task(run)

    def log_id(self, task: Mapping[str, Any]) -> int:
        """What the log service is asked by: the id of the run, or of the task among others."""
        return self.run_id if self.task is None else int(task["run_id"])

    def cancelled_id(self, runs: RunCache) -> int | None:
        """The id to cancel: `runs/cancel` takes that of a run, and that of a task's newest attempt
        (`JobsAPI.cancel_run` in `databricks/sdk/service/jobs.py`). None while there is none."""
        if self.task is None:
            return self.run_id
        shown = self._of_task(runs.run(self.run_id, afresh=True) or {})
        newest = max(shown["tasks"], key=attempt_number, default=None)
        return int(newest["run_id"]) if newest is not None else None

    def explained(self, status: RemoteStatus, runs: RunCache) -> RemoteStatus:
        """The status with the names of the attempts that this one waits for, or with the one that
        it was not started because of."""
        view = status.view
        waits = view.state is AttemptState.QUEUED
        if not self.after or not (waits or view.failure is FailureClass.UPSTREAM_FAILED):
            return status
        run = runs.run(self.run_id) or {}
        ends = {name: _result(run, key) for key, name in self.after.items()}
        if waits:
            pending = [name for name, result in ends.items() if result not in _GOOD]
            words = listed(pending) if pending else view.waiting_for
            return replace(status, view=replace(view, waiting_for=words))
        for name, result in ends.items():
            if result is not None and result not in _GOOD:
                summary = refusal(name, _ENDED.get(result, "failed"))
                view = failed_view(view, FailureClass.UPSTREAM_FAILED, summary)
                return replace(status, view=view)
        return status

    def _of_task(self, run: Mapping[str, Any]) -> Mapping[str, Any]:
        tasks = [task for task in run.get("tasks") or () if task.get("task_key") == self.task]
        newest: Mapping[str, Any] = max(tasks, key=attempt_number, default={})
        part = {**run, "tasks": tasks}
        if state_of(run) is None:
            if not has_ended(newest):
                return part  # it ended with the run
        elif attempt_number(newest) < self.retries and _unsuccessful(newest):
            return {**part, "state": {"life_cycle_state": "RUNNING"}, "status": {}}
        names = ("state", "status", "end_time")
        return {**part, **{name: newest.get(name) for name in names}}


def run_part(marker: Mapping[str, Any], retries: int) -> RunPart:
    """The part of a run that the marker of a started launch names."""
    return RunPart(
        run_id=marker["run_id"],
        task=marker.get("task"),
        retries=retries,
        after=marker.get("after") or {},
    )


def _unsuccessful(task: Mapping[str, Any]) -> bool:
    """Whether an attempt of a task ended so that `max_retries` counts (`SubmitTask`, same file)."""
    state = task.get("state") or {}
    ended = state.get("result_state") == "FAILED"
    return ended or state.get("life_cycle_state") == "INTERNAL_ERROR"


def _result(run: Mapping[str, Any], key: str) -> str | None:
    """How a task of a run has ended; None while it has not."""
    tasks = [task for task in run.get("tasks") or () if task.get("task_key") == key]
    newest: Mapping[str, Any] = max(tasks, key=attempt_number, default={})
    result = (newest.get("state") or {}).get("result_state")
    return str(result) if result else None
