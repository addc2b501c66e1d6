"""From a job's config to its document: a pure function."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from sgpu_decl.backends.databricks.jobs.documents import DEPLOYMENTS
from sgpu_decl.backends.databricks.launching.submit import (
    ENVIRONMENT,
    StagedLaunch,
    base_of,
    environment_of,
    retries_of,
    task_of,
    timeout_of,
)
from sgpu_decl.backends.databricks.planning.machines import node_of
from sgpu_decl.backends.job_backend import JobDescription
from sgpu_decl.config.env import Env
from sgpu_decl.config.gpu_type import GpuType
from sgpu_decl.config.job import Job, Trigger
from sgpu_decl.config.platform import Permission
from sgpu_decl.config.run import RunConfig
from sgpu_decl.model.job import PERMISSIONS
from sgpu_decl.model.jsonable import Json
from sgpu_decl.model.target import Mode

__all__ = ["JobRun", "describe", "short_name"]

_LEVELS = {"view": "CAN_VIEW", "run": "CAN_MANAGE_RUN", "manage": "CAN_MANAGE"}
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


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRun:
    """The run that a job launches: its config, the id of its placement, if any, and where it is
    staged."""

    config: RunConfig
    placement: str | None
    staged: StagedLaunch


def describe(
    job: Job, name: str, mode: Mode, user: str, run: JobRun | None = None
) -> JobDescription:
    """What a declared job means. What it says of permissions, budget and notifications wins over
    what its run says.

    Args:
        name: its key in the file.
        user: who applies it; told from others where `mode` is development.
        run: what it launches, where that is no notebook.

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
        "tasks": {name: _run_task(run) if run is not None else _notebook_task(job)},
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
    budget = job.budget or (run.staged.policy if run is not None else None)
    if budget is not None:
        document["budget_policy_id"] = budget
    on_finish = job.on_finish or (run.config.on_finish if run is not None else None)
    if on_finish is not None:
        told = {"on_success": on_finish.success, "on_failure": on_finish.failure}
        document["email_notifications"] = {key: list(to) for key, to in told.items() if to}
    spec = _environment(job, run)
    if spec is not None:
        document["environments"] = {ENVIRONMENT: {"spec": spec}}
    permissions = job.permissions or (run.config.permissions if run is not None else ())
    if permissions:
        document[PERMISSIONS] = _permissions(permissions)
    return JobDescription(title=title, document=document, origins=_origins(name, run))


def short_name(user: str) -> str:
    """A user's name as bundles shorten it: what is before the `@`, letters and digits alone."""
    return _NO_NAME.sub("_", user.partition("@")[0])


def _origins(name: str, run: JobRun | None) -> dict[str, str]:
    found = {path.replace("*", name, 1): field for path, field in _ORIGINS.items()}
    found[f"environments.{ENVIRONMENT}.spec.dependencies"] = "notebook.dependencies"
    if run is None:
        return found
    below = ("tasks", "environments")
    return {
        **{path: field for path, field in found.items() if path.partition(".")[0] not in below},
        **dict.fromkeys(below, "run"),
    }


def _environment(job: Job, run: JobRun | None) -> dict[str, Json] | None:
    if run is not None:
        return environment_of(Env(base=base_of(run.config)), run.staged.dependencies)
    if job.notebook is not None and job.notebook.base is not None:
        return environment_of(Env(base=job.notebook.base), job.notebook.dependencies)
    return None


def _run_task(run: JobRun) -> dict[str, Json]:
    asked = task_of(run.config, run.staged, run_name=run.config.name, placement=run.placement)
    (deployment,) = asked.pop("deployments")  # type: ignore[misc]  # a list of one
    task: dict[str, Json] = {
        "ai_runtime_task": {**asked, DEPLOYMENTS: {"0": deployment}},
        "environment_key": ENVIRONMENT,
        "max_retries": retries_of(run.config),
        "timeout_seconds": timeout_of(run.config),
    }
    return task


def _notebook_task(job: Job) -> dict[str, Json]:
    notebook = job.notebook
    assert notebook is not None  # noqa: S101  a job has either
    ran: dict[str, Json] = {"notebook_path": notebook.path}
    if notebook.parameters:
        ran["base_parameters"] = dict(notebook.parameters)
    task: dict[str, Json] = {"notebook_task": ran}
    if notebook.type is not None:
        task["compute"] = {"hardware_accelerator": node_of(GpuType.read(notebook.type))}
    if notebook.base is not None:
        task["environment_key"] = ENVIRONMENT
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
    for item in given:
        named = {
            "user_name": item.user,
            "group_name": item.group,
            "service_principal_name": item.service_principal,
        }
        for kind, name in named.items():
            if name is not None:
                levels.setdefault(kind, {})[name] = _LEVELS[item.level]
    return dict(levels)
