"""What AI Runtime says of its runs: `/api/2.0/ai-training/…`. The SDK does not know this API; the
command-line clients of the platform do."""

from collections.abc import Iterator, Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from sgpu_decl.model.jsonable import Json
from sgpu_decl.testing.workspace.clock import now_ns
from sgpu_decl.testing.workspace.executing.logs import read_page
from sgpu_decl.testing.workspace.executing.records import RunRecords, TaskAttempt, attempt_folder
from sgpu_decl.testing.workspace.routes import (
    ApiError,
    JsonObject,
    Request,
    Response,
    Route,
    invalid,
)
from sgpu_decl.testing.workspace.run_options import option_problems
from sgpu_decl.testing.workspace.task_rules import (
    TaskProblem,
    Terms,
    ai_runtime_problems,
    problems,
)

__all__ = ["ROUTES"]

_SECOND = 1_000_000_000
_MOST_LINES = 10_000
_USUAL_LINES = 1_000
_USUAL_RUNS = 100


def workflows(request: Request) -> Response:
    """The caller's runs, the newest first."""
    active = request.flag("active_only")
    found = [run for run in RunRecords(request.tenant).all() if run.active or not active]
    start = int(request.query.get("page_token") or 0)
    size = request.integer("page_size", _USUAL_RUNS) or _USUAL_RUNS
    listed: list[Json] = [
        {"job_run_id": str(run.run_id), "submit_time": _rfc3339(run.started)}
        for run in found[start : start + size]
        if any("ai_runtime_task" in task for task in run.tasks)
    ]
    answer: JsonObject = {"training_workflows": listed}
    if start + size < len(found):
        answer["next_page_token"] = str(start + size)
    return Response(json=answer)


def logs(request: Request) -> Response:
    """Lines of a run's attempt, of one node or of all."""
    attempt = _attempt(request)
    to = request.query.get("to")
    until = None if to is None else int(to) * _SECOND
    late = request.server.profile.found.get("log-delay-seconds")
    if late is not None:
        there = now_ns() - int(float(str(late)) * _SECOND)
        until = there if until is None else min(until, there)
    token = request.query.get("page_token")
    page = read_page(
        attempt_folder(request.tenant, attempt.run_id),
        Path(attempt.logs),
        node=request.integer("filter.node_index") if "filter.node_index" in request.query else None,
        since_ns=request.integer("from", 0) * _SECOND,
        until_ns=until,
        ascending=request.query.get("ascending", "true").lower() == "true",
        start=int(token) if token else None,
        size=min(request.integer("page_size", _USUAL_LINES) or _USUAL_LINES, _MOST_LINES),
    )
    records: list[Json] = [
        {
            "record_id": f"{attempt.run_id}-{one.number}",
            "time_unix_nano": one.time_ns,
            "body": one.text,
            "node_index": one.node,
        }
        for one in page.records
    ]
    answer: JsonObject = {"log_records": records}
    if page.next is not None:
        answer["next_page_token"] = str(page.next)
    return Response(json=answer)


def validate(request: Request) -> Response:
    """What is wrong with a run that is not submitted yet: all of it, each with its path."""
    given = request.json
    task, environment = given.get("task"), given.get("environment")
    if not isinstance(task, dict):
        raise invalid("Missing required field: task")
    asked = task.get("ai_runtime_task", task)
    found: list[TaskProblem] = []
    terms = request.server.terms
    try:
        if isinstance(environment, dict):
            found += _problems_together(asked, environment, terms)
        else:
            found += ai_runtime_problems(asked, terms)
        options = given.get("run_options")
        found += option_problems(options if isinstance(options, dict) else {})
    except (AttributeError, TypeError) as error:
        raise ApiError(
            400, "MALFORMED_REQUEST", f"Could not parse request object: {error}"
        ) from None
    errors: list[Json] = [{**asdict(one), "code": "INVALID_PARAMETER_VALUE"} for one in found]
    if not terms.profile.flag("validation-names-fields"):
        errors = [{"message": one.message, "code": "INVALID_PARAMETER_VALUE"} for one in found]
    return Response(json={"errors": errors} if errors else {})


def _problems_together(
    asked: Mapping[str, Any], environment: Mapping[str, Any], terms: Terms
) -> Iterator[TaskProblem]:
    """Those of a run with this task and this environment, with paths as the question has them."""
    key = "it"
    task = {"task_key": key, "environment_key": key, "ai_runtime_task": asked}
    environments = [{"environment_key": key, "spec": environment}]
    for one in problems({"tasks": [task], "environments": environments}, terms):
        path = one.path.removeprefix("tasks[0].").removeprefix("ai_runtime_task.")
        path = path.replace("environments[0].spec", "environment")
        yield TaskProblem("environment" if path == "environment_key" else path, one.message)


def _attempt(request: Request) -> TaskAttempt:
    text = request.parameters["run_id"]
    if not text.isdigit():
        raise invalid(f"Invalid run id '{text}'.")
    runs = RunRecords(request.tenant)
    owner = runs.owner(int(text))
    task = owner.attempt(int(text)) if owner is not None else None
    if task is not None:
        return task
    run = runs.get(int(text))
    if run is None:
        raise ApiError(404, "RESOURCE_DOES_NOT_EXIST", f"Run {text} does not exist.")
    number = request.query.get("ref.attempt_number")
    for attempt in reversed(run.attempts):
        if number in (None, "", str(attempt.number)):
            return attempt
    message = f"Run {text} has no attempt {number}."
    raise ApiError(404, "RESOURCE_DOES_NOT_EXIST", message)


def _rfc3339(ms: int) -> str:
    moment = datetime.fromtimestamp(ms / 1000, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


ROUTES = (
    Route("POST", "/api/2.0/ai-training/config:validate", validate, needs="validation"),
    Route("GET", "/api/2.0/ai-training/workflows", workflows),
    Route(
        "GET", "/api/2.0/ai-training/workflows/by-run-id/{run_id}/logs", logs, needs="log-service"
    ),
)
