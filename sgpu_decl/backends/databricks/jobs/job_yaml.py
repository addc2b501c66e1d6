"""A job of the workspace as the YAML would say it: the way back from its document."""

import json
import posixpath
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from sgpu_decl.backends.databricks.bases import all_bases
from sgpu_decl.backends.databricks.jobs.job_fields import EVENTS, job_field
from sgpu_decl.backends.databricks.jobs.lakeflow_rules import RULES
from sgpu_decl.backends.job_backend import WrittenJob
from sgpu_decl.model.job import PERMISSIONS, TASKS
from sgpu_decl.model.jsonable import Json, Spec
from sgpu_decl.model.permission_names import OWN_HOLDERS, OWN_LEVELS
from sgpu_decl.planner.field_changes import leaves
from sgpu_decl.planner.jobs.ignored_settings import without_defaults

_ONE_TO_ONE = (
    "description", "schedule.quartz_cron_expression", "schedule.timezone_id",
    "trigger.file_arrival.url", "trigger.file_arrival.min_time_between_triggers_seconds",
    "trigger.file_arrival.wait_after_last_change_seconds", "trigger.table_update.condition",
    "trigger.table_update.min_time_between_triggers_seconds",
    "trigger.table_update.wait_after_last_change_seconds", "timeout_seconds", "health.rules",
    "budget_policy_id", "run_as.user_name", "run_as.service_principal_name",
)  # fmt: skip
"""Settings that are one field each, whose value `job_field` gives."""
_DEFAULTS = {"schedule.timezone_id": "UTC", "trigger.table_update.condition": "ANY_UPDATED"}
_NOTEBOOK = frozenset(
    {"notebook_task", "compute", "environment_key", "max_retries", "timeout_seconds"}
)
_SCRIPT = frozenset({"spark_python_task", "environment_key", "max_retries", "timeout_seconds"})
_ORDER = frozenset({"depends_on", "run_if"})


def files_of(document: Mapping[str, Any]) -> Iterator[str]:
    """The paths in the workspace of the notebooks and Python files that the tasks of a job
    execute."""
    for task in (document.get(TASKS) or {}).values():
        for one, key in (("notebook_task", "notebook_path"), ("spark_python_task", "python_file")):
            path = str((task.get(one) or {}).get(key) or "")
            if path.startswith("/") and _is_there(task[one]):
                yield path


def _is_there(executed: Mapping[str, Any]) -> bool:
    """Whether what a task executes lies in the workspace, and not in a repository."""
    return (executed.get("source") or "WORKSPACE") == "WORKSPACE"


def name_of(path: str, content: bytes) -> str | None:
    """What a file of the workspace is called in a repository; None of a notebook that is neither of
    Python nor of Jupyter. Source: https://docs.databricks.com/aws/en/notebooks/notebook-format"""
    name = posixpath.basename(path)
    if name.endswith((".py", ".ipynb")):
        return name
    if content.startswith(b"# Databricks notebook source"):
        return f"{name}.py"
    try:
        cells = json.loads(content)["cells"]
    except (ValueError, KeyError, TypeError):
        return None
    return f"{name}.ipynb" if isinstance(cells, list) else None


def written_job(
    document: Mapping[str, Any], name: str, copied: Mapping[str, str] | None = None
) -> WrittenJob:
    """A job as a block of the YAML, all of its tasks included, and the paths of the settings that
    the YAML has no field for.

    Args:
        document: as it is read.
        name: what the job is called in the file.
        copied: the paths of files beside the YAML, by those in the workspace.
    """
    asked = {key: document[key] for key in ("run_as",) if key in document}
    kept: dict[str, Any] = dict(without_defaults(Spec.of(document), RULES, Spec.of(asked)).fields)
    settings = dict(leaves(kept))
    taken: set[str] = {"name"}
    block: dict[str, Any] = {"name": document["name"]} if document.get("name") != name else {}

    def take(path: str) -> Json:
        taken.add(path)
        return settings[path]

    for path in _ONE_TO_ONE:
        if path in settings and take(path) != _DEFAULTS.get(path):
            found = job_field(path, settings)
            _put(block, found.path.split("."), found.value)
    if isinstance(arrival := block.get("trigger", {}).get("file_arrival"), dict):
        arrival["url"] = take("trigger.file_arrival.url")
    _trigger(block, settings, take)
    for start in ("schedule", "trigger"):
        if f"{start}.pause_status" in settings:
            block["paused"] = take(f"{start}.pause_status") == "PAUSED"
    queue = document.get("queue") or {}
    block["queue"] = bool(queue.get("enabled"))
    taken.add("queue.enabled")
    if "max_concurrent_runs" in settings and take("max_concurrent_runs") != 1:
        block["max_concurrent_runs"] = settings["max_concurrent_runs"]
    for key, field in (("tags", "tags"), ("parameters", "parameters")):
        for path in [one for one in settings if one.startswith(f"{key}.")]:
            inner = kept[key]
            taken.add(path)
            block[field] = {
                one: value["default"] if isinstance(value, Mapping) else value
                for one, value in inner.items()
            }
    notify = dict(_notify(kept, taken))
    if notify:
        block["notify"] = notify
    if permissions := document.get(PERMISSIONS):
        block["permissions"] = [
            {"level": OWN_LEVELS.get(level, level), OWN_HOLDERS[kind]: who}
            for kind, granted in permissions.items()
            for who, level in granted.items()
        ]
        taken |= {one for one in settings if one.startswith(f"{PERMISSIONS}.")}
    environments = kept.get("environments") or {}
    used: set[str] = set()
    block[TASKS] = {
        key: _task(task, environments, used, copied or {})
        for key, task in (kept.get(TASKS) or {}).items()
    }
    taken |= {one for one in settings if one.startswith(f"{TASKS}.")}
    taken |= {one for one in settings if one.split(".")[1:2] and one.split(".")[1] in used
              and one.startswith("environments.")}  # fmt: skip
    return WrittenJob(block=block, lost=tuple(sorted(settings.keys() - taken)))


def _trigger(
    block: dict[str, Any], settings: Mapping[str, Json], take: Callable[[str], Json]
) -> None:
    interval, unit = "trigger.periodic.interval", "trigger.periodic.unit"
    if interval in settings:
        take(unit)
        take(interval)
        block["trigger"] = {"every": job_field(interval, settings).value}
    tables = "trigger.table_update.table_names"
    if tables in settings:
        trigger = block.setdefault("trigger", {})
        found = trigger.get("table_update")
        trigger["table_update"] = {
            "tables": take(tables), **(found if isinstance(found, dict) else {})
        }  # fmt: skip


def _notify(kept: Mapping[str, Any], taken: set[str]) -> Iterator[tuple[str, Json]]:
    for event, name in EVENTS.items():
        recipients: list[Json] = []
        for address in (kept.get("email_notifications") or {}).get(event) or ():
            taken.add(f"email_notifications.{event}")
            recipients.append(address)
        for hook in (kept.get("webhook_notifications") or {}).get(event) or ():
            taken.add(f"webhook_notifications.{event}")
            recipients.append({"webhook": hook["id"]})
        if recipients:
            yield name, recipients


def _task(
    task: Mapping[str, Any],
    environments: Mapping[str, Any],
    used: set[str],
    copied: Mapping[str, str],
) -> dict[str, Any]:
    """A notebook as such, and a Python file that was copied; all others in the words of the
    platform."""
    settings = {f"t.{path}": value for path, value in leaves(dict(task))}
    block: dict[str, Any] = {}
    spec = (environments.get(str(task.get("environment_key"))) or {}).get("spec") or {}
    base = _base(spec)
    given = dict(_environment(base, spec))
    if base is not None:
        used.add(str(task["environment_key"]))
    notebook = task.get("notebook_task") or {}
    whole = base is not None or "environment_key" not in task
    plain = notebook.keys() <= {"notebook_path", "base_parameters"} and whole
    if notebook and plain and task.keys() - _ORDER <= _NOTEBOOK:
        block["notebook"] = {
            "path": copied.get(notebook["notebook_path"], notebook["notebook_path"]),
            **({"parameters": dict(ps)} if (ps := notebook.get("base_parameters")) else {}),
            **({"retries": task["max_retries"]} if task.get("max_retries") else {}),
            **given,
        }
        if node := (task.get("compute") or {}).get("hardware_accelerator"):
            block["notebook"]["type"] = node
        block |= _timeout(settings)
    elif (script := _copied_script(task, copied)) is not None and base is not None:
        block |= {**script, **given, **_timeout(settings)}
    else:
        left = _ORDER | ({"environment_key"} if base is not None else set())
        block["task"] = {key: _listed(key, value) for key, value in task.items() if key not in left}
        block |= given
    if before := task.get("depends_on"):
        block["after"] = [
            ".".join(str(one[key]) for key in ("task_key", "outcome") if key in one)
            for one in before
        ]
    if task.get("run_if", "ALL_SUCCESS") != "ALL_SUCCESS":
        block["if"] = str(task["run_if"]).lower()
    return block


def _copied_script(task: Mapping[str, Any], copied: Mapping[str, str]) -> dict[str, Any] | None:
    """A task with a Python file that lies beside the YAML now; None of other tasks."""
    script = task.get("spark_python_task") or {}
    path = copied.get(str(script.get("python_file")))
    known = script.keys() <= {"python_file", "parameters", "source"} and _is_there(script)
    if path is None or not known or task.keys() - _ORDER - _SCRIPT:
        return None
    return {
        "python": path,
        **({"args": list(script["parameters"])} if script.get("parameters") else {}),
        **({"retries": task["max_retries"]} if task.get("max_retries") else {}),
    }


def _timeout(settings: Mapping[str, Json]) -> dict[str, Json]:
    seconds = settings.get("t.timeout_seconds")
    if not seconds:
        return {}
    return {"timeout": job_field("timeout_seconds", {"timeout_seconds": seconds}).value}


def _listed(key: str, value: Any) -> Any:
    """The deployments of a task as the platform lists them."""
    if key == "ai_runtime_task" and isinstance(deployments := value.get("deployments"), Mapping):
        return {**value, "deployments": list(deployments.values())}
    return value


def _environment(base: str | None, spec: Mapping[str, Any]) -> Iterator[tuple[str, Json]]:
    if base is not None:
        yield "base", base
        if spec.get("dependencies"):
            yield "dependencies", list(spec["dependencies"])


def _base(spec: Mapping[str, Any]) -> str | None:
    """What the YAML calls the base of an environment; None where the spec says more than the YAML
    can."""
    if spec.keys() - {"environment_version", "base_environment", "dependencies", "client"}:
        return None
    selected = spec.get("environment_version") or spec.get("base_environment")
    if not selected:
        return None
    for base in all_bases():
        if base.for_tasks and selected in (base.environment_version, base.base_environment):
            return base.name
    return str(selected) if "/" in str(selected) else None


def _put(block: dict[str, Any], path: list[str], value: Json) -> None:
    *above, last = path
    for key in above:
        inner = block.get(key)
        block[key] = inner if isinstance(inner, dict) else {}
        block = block[key]
    block[last] = value
