"""From a job's config to its document: a pure function."""

import re
from collections.abc import Mapping
from types import MappingProxyType

from sgpu_decl.backends.databricks.submitting import environment_of
from sgpu_decl.backends.keeping import Described
from sgpu_decl.config.env import Env
from sgpu_decl.config.job import Job, Trigger
from sgpu_decl.config.platform import Permission
from sgpu_decl.config.project import Mode
from sgpu_decl.errors import BackendError
from sgpu_decl.model.job import PERMISSIONS
from sgpu_decl.model.jsonable import Json

__all__ = ["describe", "short_name"]

_LEVELS = {"view": "CAN_VIEW", "run": "CAN_MANAGE_RUN", "manage": "CAN_MANAGE"}
_ENVIRONMENT = "default"
_NO_NAME = re.compile(r"[^\w]|_", re.UNICODE)

# Which field of the YAML leads to what; `*` is the task.
_ORIGINS: Mapping[str, str] = MappingProxyType(
    {
        "name": "name",
        "description": "description",
        "schedule": "schedule",
        "schedule.timezone_id": "timezone",
        "schedule.pause_status": "paused",
        "trigger": "trigger",
        "trigger.periodic": "trigger.every",
        "trigger.file_arrival": "trigger.file_arrival",
        "trigger.table_update": "trigger.table_update",
        "trigger.pause_status": "paused",
        "queue": "on_overlap",
        "max_concurrent_runs": "on_overlap",
        "timeout_seconds": "timeout",
        "tags": "tags",
        "email_notifications": "on_finish",
        "email_notifications.on_success": "on_finish.success",
        "email_notifications.on_failure": "on_finish.failure",
        "budget_policy_id": "budget",
        "permissions": "permissions",
        "backend": "backend",
        "lifecycle": "lifecycle",
        "environments": "notebook.base",
        "environments.*.spec.dependencies": "notebook.dependencies",
        "tasks": "notebook",
        "tasks.*.notebook_task": "notebook",
        "tasks.*.notebook_task.notebook_path": "notebook.path",
        "tasks.*.notebook_task.base_parameters": "notebook.parameters",
        "tasks.*.compute": "notebook.type",
        "tasks.*.max_retries": "notebook.retries",
        "tasks.*.environment_key": "notebook.base",
    }
)


def describe(job: Job, name: str, mode: Mode, user: str) -> Described:
    """What a declared job means.

    Args:
        name: its key in the file.
        user: who applies it; told from others where `mode` is development.

    Raises:
        BackendError: the platform has nothing of the kind.
    """
    title = job.name or name
    tags: dict[str, Json] = dict(job.tags)
    paused = job.paused or False
    if mode is Mode.DEVELOPMENT:
        title = f"[dev {short_name(user)}] {title}"
        tags.setdefault("dev", short_name(user))
        paused = job.paused is not False
    document: dict[str, Json] = {
        "name": title,
        "max_concurrent_runs": 1,
        "queue": {"enabled": job.on_overlap == "queue"},
        "tasks": {name: _task(job)},
    }
    status = {"pause_status": "PAUSED" if paused else "UNPAUSED"}
    if job.description is not None:
        document["description"] = job.description
    if tags:
        document["tags"] = tags
    if job.schedule is not None:
        document["schedule"] = {
            "quartz_cron_expression": job.schedule,
            "timezone_id": job.timezone,
            **status,
        }
    if job.trigger is not None:
        document["trigger"] = {**_trigger(job.trigger), **status}
    if job.timeout is not None:
        document["timeout_seconds"] = max(1, round(job.timeout.seconds))
    if job.budget is not None:
        document["budget_policy_id"] = job.budget
    if job.on_finish is not None:
        told = {"on_success": job.on_finish.success, "on_failure": job.on_finish.failure}
        document["email_notifications"] = {key: list(to) for key, to in told.items() if to}
    if job.notebook is not None and job.notebook.base is not None:
        spec = environment_of(Env(base=job.notebook.base), job.notebook.dependencies)
        document["environments"] = {_ENVIRONMENT: {"spec": spec}}
    if job.permissions:
        document[PERMISSIONS] = _permissions(job.permissions)
    origins = {path.replace("*", name, 1): field for path, field in _ORIGINS.items()}
    origins[f"environments.{_ENVIRONMENT}.spec.dependencies"] = "notebook.dependencies"
    return Described(title=title, document=document, origins=origins)


def short_name(user: str) -> str:
    """A user's name as bundles shorten it: what is before the `@`, letters and digits alone."""
    return _NO_NAME.sub("_", user.partition("@")[0])


def _task(job: Job) -> dict[str, Json]:
    notebook = job.notebook
    if notebook is None:
        raise BackendError("a job of a run has no task yet", code="not_yet")
    ran: dict[str, Json] = {"notebook_path": notebook.path}
    if notebook.parameters:
        ran["base_parameters"] = dict(notebook.parameters)
    task: dict[str, Json] = {"notebook_task": ran}
    if notebook.type is not None:
        task["compute"] = {"hardware_accelerator": notebook.type}
    if notebook.base is not None:
        task["environment_key"] = _ENVIRONMENT
    if notebook.retries:
        task["max_retries"] = notebook.retries
    return task


def _trigger(trigger: Trigger) -> dict[str, Json]:
    if trigger.period is not None:
        interval, unit = trigger.period
        return {"periodic": {"interval": interval, "unit": unit}}
    if trigger.file_arrival is not None:
        return {"file_arrival": {"url": trigger.file_arrival}}
    return {"table_update": {"table_names": list(trigger.table_update or ())}}


def _permissions(given: tuple[Permission, ...]) -> dict[str, Json]:
    levels: dict[str, dict[str, Json]] = {}
    for it in given:
        named = {
            "user_name": it.user,
            "group_name": it.group,
            "service_principal_name": it.service_principal,
        }
        for kind, name in named.items():
            if name is not None:
                levels.setdefault(kind, {})[name] = _LEVELS[it.level]
    return dict(levels)
