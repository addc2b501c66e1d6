"""Settings of jobs and runs as the Jobs API keeps them: checked, and with the server's defaults."""

import json
from collections.abc import Mapping
from itertools import chain
from typing import Any

from sgpu_decl.testing.workspace.executing.loops import nested_task
from sgpu_decl.testing.workspace.executing.workload import EXECUTED
from sgpu_decl.testing.workspace.routes import ApiError, JsonObject, invalid
from sgpu_decl.testing.workspace.schedule_rules import schedule_problems
from sgpu_decl.testing.workspace.task_rules import TOKEN_LIMIT, Terms, problems

__all__ = ["checked_token", "executable", "kept_settings", "run_settings"]

_JOB_DEFAULTS: Mapping[str, Any] = {
    "name": "Untitled",
    "email_notifications": {},
    "webhook_notifications": {},
    "timeout_seconds": 0,
    "max_concurrent_runs": 1,
    "format": "MULTI_TASK",
}
_TASK_DEFAULTS: Mapping[str, Any] = {
    "run_if": "ALL_SUCCESS",
    "timeout_seconds": 0,
    "email_notifications": {},
}
_TIMED = ("schedule", "trigger", "continuous")
_RUN_ALONE = ("idempotency_token", "run_name", "access_control_list")


def kept_settings(given: Mapping[str, Any], terms: Terms) -> JsonObject:
    """A job's settings as they are kept. Raises ApiError, 400."""
    _check(given, terms)
    settings = {name: value for name, value in given.items() if name != "access_control_list"}
    return _with_tasks({**_JOB_DEFAULTS, **settings})


def run_settings(given: Mapping[str, Any], terms: Terms) -> JsonObject:
    """What a submitted run runs. Raises ApiError: 400, or 501 as `executable` does."""
    if not given.get("tasks"):
        raise invalid("One of 'tasks' must be specified: a run has at least one task.")
    executable(given, terms)
    return _with_tasks({key: value for key, value in given.items() if key not in _RUN_ALONE})


def executable(settings: Mapping[str, Any], terms: Terms) -> None:
    """Refuse what cannot be executed: in this workspace, as it is now (ApiError, 400), or by
    nobody here (501)."""
    _check(settings, terms)
    for task in settings.get("tasks") or ():
        if not any(kind in (nested_task(task) or task) for kind in EXECUTED):
            message = f"this emulator executes {', '.join(EXECUTED)}; not task '{task['task_key']}'"
            raise ApiError(501, "NOT_IMPLEMENTED", message)


def checked_token(given: Mapping[str, Any]) -> str:
    """The idempotency token; empty where there is none. Raises ApiError, 400."""
    token = given.get("idempotency_token") or ""
    if not isinstance(token, str) or len(token) > TOKEN_LIMIT:
        raise invalid(f"idempotency_token must have at most {TOKEN_LIMIT} characters.")
    return token


def _check(given: Mapping[str, Any], terms: Terms) -> None:
    try:
        first = next(chain(problems(given, terms), schedule_problems(given)), None)
    except (AttributeError, TypeError, ValueError) as error:
        raise ApiError(
            400, "MALFORMED_REQUEST", f"Could not parse request object: {error}"
        ) from None
    if first is not None:
        raise invalid(f"{first.message} ({first.path})")


def _with_tasks(settings: Mapping[str, Any]) -> JsonObject:
    tasks = [_task(task) for task in settings.get("tasks") or ()]
    timed = {
        name: {"pause_status": "UNPAUSED", **settings[name]}
        for name in _TIMED
        if settings.get(name)
    }
    whole: JsonObject = json.loads(json.dumps({**settings, **timed, "tasks": tasks}))
    return whole if tasks else {key: value for key, value in whole.items() if key != "tasks"}


def _task(given: Mapping[str, Any]) -> dict[str, Any]:
    task = {**_TASK_DEFAULTS, **given}
    if "depends_on" in task:
        task["depends_on"] = sorted(task["depends_on"], key=lambda one: str(one["task_key"]))
    return task
