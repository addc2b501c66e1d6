"""From a job's config to its document: a pure function."""

import posixpath
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sgpu_decl.backends.databricks.jobs.documents import DEPLOYMENTS
from sgpu_decl.backends.databricks.jobs.job_fields import field_origins
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
from sgpu_decl.config.run_blocks import Permission
from sgpu_decl.model.job import PERMISSIONS
from sgpu_decl.model.jsonable import Json
from sgpu_decl.model.target import USER, Mode

_NO_NAME = re.compile(r"[^\w]|_", re.UNICODE)

_TASK = "ai_runtime_task"
_EXPERIMENTS = "mlflow_experiment_directory"
_PLACES = ("code_source_path", _EXPERIMENTS)


def describe(
    job: Job,
    name: str,
    mode: Mode,
    user: str,
    run: StagedLaunch | None = None,
    applied_title: str = "",
) -> JobDescription:
    """The document of a declared job. Its permissions, budget and notifications win over those of
    its run.

    Args:
        name: its key in the file.
        user: who applies it; part of the title and the tags if `mode` is development, and in the
            place of `${user}` in the title.
        run: what it launches, unless that is a notebook.
        applied_title: what the job was called when it was applied last. Whoever that names goes on
            to be named, so that it does not change with who plans it.

    Raises:
        BackendError: the platform has nothing of the kind.
    """
    title = job.name or name
    tags: dict[str, Json] = dict(job.tags)
    paused = job.paused or False
    if USER not in title and mode is Mode.DEVELOPMENT:
        title = f"[dev {USER}] {title}"
    who = _named_in(applied_title, title) or short_name(user)
    title = title.replace(USER, who)
    if mode is Mode.DEVELOPMENT:
        tags.setdefault("dev", who)
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
        "tasks": {name: run_task(run) if run is not None else _notebook_task(job)},
        "description": job.description,
        "tags": tags or None,
        "schedule": schedule if job.schedule is not None else None,
        "trigger": {**_trigger(job.trigger), **status} if job.trigger is not None else None,
        "timeout_seconds": max(1, round(job.timeout.seconds)) if job.timeout is not None else None,
        "budget_policy_id": job.budget or (run.policy if run is not None else None),
        "email_notifications": notifications(on_finish) or None,
        "environments": {ENVIRONMENT: {"spec": spec}} if spec is not None else None,
        PERMISSIONS: _permissions(permissions) if permissions else None,
    }
    return JobDescription(
        title=title,
        document=present(document),
        origins=field_origins(name, launches_run=run is not None),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class JobPlaces:
    """Where a job's run is launched from, and where its experiment lies: the folder of its command
    and that of the experiment. Empty in a job that launches no run."""

    commands: str = ""
    experiments: str = ""


def places_in(spec: Mapping[str, Json]) -> JobPlaces:
    """The places that the spec of a job names."""
    tasks = spec.get("tasks")
    for task in tasks.values() if isinstance(tasks, Mapping) else ():
        match task:
            case {"ai_runtime_task": {"deployments": {"0": {"command_path": str(path)}}, **more}}:
                folder = more.get(_EXPERIMENTS)
                return JobPlaces(commands=posixpath.dirname(path), experiments=str(folder or ""))
    return JobPlaces()


def with_places(spec: Mapping[str, Json], run: StagedLaunch) -> dict[str, Json]:
    """The spec of a job with the places of what it launches."""
    launched: Any = run_task(run)[_TASK]
    (command,) = (item["command_path"] for item in launched[DEPLOYMENTS].values())
    tasks: Any = spec.get("tasks")
    located: dict[str, Json] = {}
    for key, task in tasks.items():
        match task.get(_TASK):
            case {"deployments": {"0": {"command_path": str()} as deployment}} as ai:
                places = {name: launched[name] for name in _PLACES if name in ai}
                deployments = {"0": {**deployment, "command_path": command}}
                located[key] = {**task, _TASK: {**ai, **places, DEPLOYMENTS: deployments}}
            case _:
                located[key] = task
    return {**spec, "tasks": located}


def short_name(user: str) -> str:
    """A user's name as bundles shorten it: what is before the `@`, letters and digits alone."""
    return _NO_NAME.sub("_", user.partition("@")[0])


def _named_in(title: str, template: str) -> str | None:
    """Who stands in a title in the place of `${user}` of its template."""
    first, *more = map(re.escape, template.split(USER))
    if not more:
        return None
    found = re.fullmatch(first + r"(\w+)" + r"\1".join(more), title)
    return found[1] if found is not None else None


def _environment(job: Job, run: StagedLaunch | None) -> dict[str, Json] | None:
    if run is not None:
        return environment_of(run.config)
    if job.notebook is not None and job.notebook.base is not None:
        return environment_spec(job.notebook.base, job.notebook.dependencies)
    return None


def run_task(run: StagedLaunch) -> dict[str, Json]:
    """The task that launches a run."""
    task = task_of(run, run_name=run.config.name)
    (deployment,) = task.pop("deployments")  # type: ignore[misc]  # a list of one
    return {
        _TASK: {**task, DEPLOYMENTS: {"0": deployment}},
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
            levels.setdefault(kind, {})[name] = RUN_LEVELS.get(permission.level, permission.level)
    return dict(levels)
