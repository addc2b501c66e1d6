"""From a job's config to its document: a pure function."""

import re
from collections.abc import Mapping
from types import MappingProxyType

from sgpu_decl.backends.databricks.jobs.documents import DEPLOYMENTS
from sgpu_decl.backends.databricks.launching.submit import (
    ENVIRONMENT,
    RUN_LEVELS,
    StagedLaunch,
    environment_of,
    environment_spec,
    notifications,
    present,
    principal,
    retries_of,
    task_of,
    timeout_of,
)
from sgpu_decl.backends.databricks.planning.machines import node_of
from sgpu_decl.backends.job_backend import JobDescription
from sgpu_decl.config.gpu_type import GpuType
from sgpu_decl.config.job import Job, Trigger
from sgpu_decl.config.platform import Permission
from sgpu_decl.model.job import PERMISSIONS
from sgpu_decl.model.jsonable import Json
from sgpu_decl.model.target import USER, Mode

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


def describe(
    job: Job, name: str, mode: Mode, user: str, run: StagedLaunch | None = None
) -> JobDescription:
    """The document of a declared job. Its permissions, budget and notifications win over those of
    its run.

    Args:
        name: its key in the file.
        user: who applies it; part of the title and the tags if `mode` is development, and in the
            place of `${user}` in the title.
        run: what it launches, unless that is a notebook.

    Raises:
        BackendError: the platform has nothing of the kind.
    """
    title = job.name or name
    tags: dict[str, Json] = dict(job.tags)
    paused = job.paused or False
    if USER in title:
        title = title.replace(USER, short_name(user))
    elif mode is Mode.DEVELOPMENT:
        title = f"[dev {short_name(user)}] {title}"
    if mode is Mode.DEVELOPMENT:
        tags.setdefault("dev", short_name(user))
        paused = job.paused is not False
    config = run.config if run is not None else None
    on_finish = job.on_finish or (config.on_finish if config is not None else None)
    permissions = job.permissions or (config.permissions if config is not None else ())
    spec = _environment(job, run)
    status = {"pause_status": "PAUSED" if paused else "UNPAUSED"}
    schedule: dict[str, Json] = {
        "quartz_cron_expression": job.schedule,
        "timezone_id": job.timezone,
        **status,
    }
    document: dict[str, Json] = {
        "name": title,
        "max_concurrent_runs": 1,
        "queue": {"enabled": job.on_overlap == "queue"},
        "tasks": {name: _run_task(run) if run is not None else _notebook_task(job)},
        "description": job.description,
        "tags": tags or None,
        "schedule": schedule if job.schedule is not None else None,
        "trigger": {**_trigger(job.trigger), **status} if job.trigger is not None else None,
        "timeout_seconds": max(1, round(job.timeout.seconds)) if job.timeout is not None else None,
        "budget_policy_id": job.budget or (run.policy if run is not None else None),
        "email_notifications": notifications(on_finish) if on_finish is not None else None,
        "environments": {ENVIRONMENT: {"spec": spec}} if spec is not None else None,
        PERMISSIONS: _permissions(permissions) if permissions else None,
    }
    return JobDescription(title=title, document=present(document), origins=_origins(name, run))


def short_name(user: str) -> str:
    """A user's name as bundles shorten it: what is before the `@`, letters and digits alone."""
    return _NO_NAME.sub("_", user.partition("@")[0])


def _origins(name: str, run: StagedLaunch | None) -> dict[str, str]:
    origins = {path.replace("*", name, 1): field for path, field in _ORIGINS.items()}
    origins[f"environments.{ENVIRONMENT}.spec.dependencies"] = "notebook.dependencies"
    if run is None:
        return origins
    below = ("tasks", "environments")
    return {
        **{path: field for path, field in origins.items() if path.partition(".")[0] not in below},
        **dict.fromkeys(below, "run"),
    }


def _environment(job: Job, run: StagedLaunch | None) -> dict[str, Json] | None:
    if run is not None:
        return environment_of(run.config)
    if job.notebook is not None and job.notebook.base is not None:
        return environment_spec(job.notebook.base, job.notebook.dependencies)
    return None


def _run_task(run: StagedLaunch) -> dict[str, Json]:
    task = task_of(run, run_name=run.config.name)
    (deployment,) = task.pop("deployments")  # type: ignore[misc]  # a list of one
    return {
        "ai_runtime_task": {**task, DEPLOYMENTS: {"0": deployment}},
        "environment_key": ENVIRONMENT,
        "max_retries": retries_of(run.config),
        "timeout_seconds": timeout_of(run.config),
    }


def _notebook_task(job: Job) -> dict[str, Json]:
    notebook = job.notebook
    assert notebook is not None  # noqa: S101  a job has either
    parameters = dict(notebook.parameters) or None
    node = None if notebook.type is None else node_of(GpuType.read(notebook.type))
    return present(
        {
            "notebook_task": present(
                {"notebook_path": notebook.path, "base_parameters": parameters}
            ),
            "compute": {"hardware_accelerator": node} if node is not None else None,
            "environment_key": ENVIRONMENT if notebook.base is not None else None,
            "max_retries": notebook.retries or None,
        }
    )


def _trigger(trigger: Trigger) -> dict[str, Json]:
    if trigger.period is not None:
        interval, unit = trigger.period
        return {"periodic": {"interval": interval, "unit": unit}}
    if trigger.file_arrival is not None:
        return {"file_arrival": {"url": trigger.file_arrival}}
    return {"table_update": {"table_names": list(trigger.table_update or ())}}


def _permissions(permissions: tuple[Permission, ...]) -> dict[str, Json]:
    levels: dict[str, dict[str, Json]] = {}
    for permission in permissions:
        for kind, name in principal(permission).items():
            levels.setdefault(kind, {})[name] = RUN_LEVELS[permission.level]
    return dict(levels)
