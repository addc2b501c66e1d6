"""Repairs: tasks of a run that has ended are run again, as part of it."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from sgpu_decl.testing.workspace.executing.endings import GOOD
from sgpu_decl.testing.workspace.executing.records import JOB_RUN, Run, RunRecords
from sgpu_decl.testing.workspace.executing.runner import Runner
from sgpu_decl.testing.workspace.job_settings import executable
from sgpu_decl.testing.workspace.routes import ApiError, Request, Response, Route, invalid
from sgpu_decl.testing.workspace.runs import credential

__all__ = ["RepairsApi"]

_PARAMETERS = (
    "dbt_commands", "jar_params", "notebook_params", "pipeline_params", "python_named_params",
    "python_params", "spark_submit_params", "sql_params",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class RepairsApi:
    """The handler; what it starts is the runner's."""

    runner: Runner

    @property
    def routes(self) -> tuple[Route, ...]:
        """Its part of the API; version 2.1 has the same path."""
        return tuple(
            Route("POST", f"/api/{version}/jobs/runs/repair", self.repair)
            for version in ("2.1", "2.2")
        )

    def repair(self, request: Request) -> Response:
        """Run tasks again, with the settings that the job has now. Retries are counted anew."""
        tenant, given = request.tenant, request.json
        if named := next((name for name in _PARAMETERS if given.get(name)), None):
            message = f"this emulator repairs with job_parameters alone, not with {named}"
            raise ApiError(501, "NOT_IMPLEMENTED", message)
        runs = RunRecords(tenant)
        with tenant.transaction():
            run = runs.need(request.integer("run_id"))
            if run.ending is None or run.ended is None:
                message = f"Run {run.run_id} is in progress, and cannot be repaired."
                raise ApiError(400, "INVALID_STATE", message)
            if given.get("latest_repair_id") != run.repair_id:
                raise invalid(
                    f"latest_repair_id must be that of the latest repair: {run.repair_id}."
                )
            keys = _keys(run, given)
            settings = _current(request, run, keys)
            executable(settings, request.server.terms)
            parameters = given.get("job_parameters")
            again = replace(
                run.reopened(tenant.next_id(), run.ended, run.ending),
                settings=settings,
                parameters={
                    **run.parameters, **(parameters if isinstance(parameters, dict) else {})
                },
            )  # fmt: skip
            runs.update(run.run_id, lambda _: again)
            for task in again.tasks:
                if task["task_key"] in keys:
                    blocked = keys & _upstream(task)
                    runs.new_attempt(
                        run.run_id, str(task["task_key"]),
                        again.latest(task["task_key"]).number + 1,
                        "BLOCKED" if blocked else "PENDING",
                    )  # fmt: skip
            whole = runs.need(run.run_id)
        self.runner.launch(tenant, whole, credential(request))
        return Response(json={"repair_id": whole.repair_id})


def _keys(run: Run, given: Mapping[str, Any]) -> set[str]:
    """The tasks to run again. Raises ApiError, 400."""
    named, failed = given.get("rerun_tasks"), given.get("rerun_all_failed_tasks")
    if bool(named) == bool(failed):
        raise invalid("Exactly one of rerun_tasks and rerun_all_failed_tasks is given.")
    known = [str(task["task_key"]) for task in run.tasks]
    if failed:
        keys = {key for key in known if run.latest(key).ending not in GOOD}
        if not keys:
            raise invalid(f"Run {run.run_id} has no failed tasks.")
    else:
        keys = {str(key) for key in named or ()}
        if unknown := sorted(keys - set(known)):
            raise invalid(f"Run {run.run_id} has no task '{unknown[0]}'.")
    while given.get("rerun_dependent_tasks"):
        below = {str(task["task_key"]) for task in run.tasks if keys & _upstream(task)}
        if below <= keys:
            break
        keys |= below
    return keys


def _current(request: Request, run: Run, keys: set[str]) -> Any:
    """The run's settings, with the tasks to run again as the job has them now."""
    job = request.tenant.table("jobs").get(run.job_id) if run.kind == JOB_RUN else None
    if job is None:
        return run.settings
    now: Any = job["settings"]
    tasks = {task["task_key"]: task for task in now.get("tasks") or ()}
    if missing := sorted(keys - tasks.keys()):
        raise invalid(f"The job has no task '{missing[0]}' any more.")
    kept = [tasks[task["task_key"]] if task["task_key"] in keys else task for task in run.tasks]
    return {**now, "tasks": kept}


def _upstream(task: Mapping[str, Any]) -> set[str]:
    return {str(one["task_key"]) for one in task.get("depends_on") or ()}
