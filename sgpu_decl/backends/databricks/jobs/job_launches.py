"""Launches of jobs: started by hand, once, and followed."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from graphlib import CycleError, TopologicalSorter
from typing import Any

from sgpu_decl.backends.databricks.api.connection import Connection
from sgpu_decl.backends.databricks.watching.termination import (
    attempt_number,
    has_ended,
    state_of,
    termination_of,
)
from sgpu_decl.errors import BackendError, OutcomeUnknown
from sgpu_decl.model.attempt import AttemptState
from sgpu_decl.model.job import JobLaunch, TaskLaunch
from sgpu_decl.model.jsonable import Json

_API = "/api/2.2/jobs"
_TRIES = 3
_SHOWN = 2_000  # characters of what a task left
_SKIPPED = frozenset({"UPSTREAM_FAILED", "UPSTREAM_CANCELED", "EXCLUDED"})
_READ = ("notebook_task", "spark_python_task")


def start_once(
    connection: Connection,
    job_id: str,
    parameters: Mapping[str, str],
    tasks: Sequence[str],
    token: str,
) -> str:
    """Launch a job, and return the id of the run. A request whose answer was lost is sent again:
    the token makes it the same run. Source: `idempotency_token` of
    https://docs.databricks.com/api/workspace/jobs/runnow

    Raises:
        OutcomeUnknown: no answer came; the same token finds the run.
        BackendError: the workspace refuses it.
    """
    body: dict[str, Json] = {"job_id": int(job_id), "idempotency_token": token}
    if parameters:
        body["job_parameters"] = dict(parameters)
    if tasks:
        body["only"] = list(tasks)
    for attempt in range(1, _TRIES + 1):
        try:
            answer = connection.tell(f"starting the job {job_id}", f"{_API}/run-now", body)
            return str(answer["run_id"])
        except BackendError as error:
            if not error.retryable:
                raise
            if attempt == _TRIES:
                raise OutcomeUnknown(
                    f"{error.message}; whether the job was started is not known",
                    hint="repeat the command: if the job was started, it finds that launch",
                ) from error
    raise AssertionError("the last try returns or raises")


def read_launch(connection: Connection, run_id: str) -> tuple[JobLaunch, tuple[TaskLaunch, ...]]:
    """A launch and its tasks. Once it has ended, they have what they left. Raises BackendError."""
    run: dict[str, Any] = {}
    tasks: list[dict[str, Any]] = []
    doing = f"looking at the launch {run_id}"
    for page in connection.pages(doing, f"{_API}/runs/get", run_id=run_id):
        tasks += page.get("tasks") or ()
        run = {**page, **run}
    newest: dict[str, dict[str, Any]] = {}
    for task in sorted(tasks, key=attempt_number):
        newest[str(task["task_key"])] = task
    launch = launch_in({**run, "tasks": tasks})
    ended = not launch.state.active
    return launch, tuple(_task(connection, newest[key], ended) for key in _in_order(newest))


def launch_in(run: Mapping[str, Any], url: str = "") -> JobLaunch:
    """A launch as the API has it."""
    return JobLaunch(
        id=str(run["run_id"]),
        state=state_of(run) or termination_of(run).state,
        started_at=_moment(run.get("start_time")),
        ended_at=_moment(run.get("end_time")),
        url=str(run.get("run_page_url") or url),
    )


def _task(connection: Connection, task: Mapping[str, Any], ended: bool) -> TaskLaunch:  # noqa: FBT001
    state = state_of(task) or termination_of(task).state
    skipped = str((task.get("state") or {}).get("result_state")) in _SKIPPED
    text = None
    if ended and not skipped and has_ended(task):
        readable = any(kind in task for kind in _READ)
        text = "\n".join(_output(connection, task)) if readable else None
        text = text or (termination_of(task).message if state is AttemptState.FAILED else None)
    return TaskLaunch(
        name=str(task["task_key"]),
        state=AttemptState.CANCELLED if skipped else state,
        skipped=skipped,
        started_at=_moment(task.get("start_time")),
        ended_at=_moment(task.get("end_time")),
        url=str(task.get("run_page_url") or ""),
        output=text[-_SHOWN:] if text else None,
    )


def _output(connection: Connection, task: Mapping[str, Any]) -> Iterator[str]:
    """Source: https://docs.databricks.com/api/workspace/jobs/getrunoutput"""
    doing = f"reading what `{task['task_key']}` left"
    try:
        answer = connection.ask(doing, f"{_API}/runs/get-output", run_id=str(task["run_id"]))
    except BackendError:  # a text that helps; the link leads to it
        return
    notebook = answer.get("notebook_output") or {}
    for text in (answer.get("logs"), notebook.get("result"), answer.get("error")):
        if text:
            yield str(text).rstrip()


def _in_order(tasks: Mapping[str, Mapping[str, Any]]) -> list[str]:
    before = {
        key: [str(one["task_key"]) for one in task.get("depends_on") or ()]
        for key, task in tasks.items()
    }
    try:
        ordered = list(TopologicalSorter(before).static_order())
    except CycleError:  # the platform has none
        return list(tasks)
    return [key for key in ordered if key in tasks]


def _moment(ms: object) -> datetime | None:
    return datetime.fromtimestamp(ms / 1000, UTC) if isinstance(ms, int) and ms else None
