"""From a job's config to its document: a pure function."""

import re
from collections.abc import Mapping

from sgpu_decl.backends.databricks.jobs.job_fields import EVENTS, SLOW, field_origins
from sgpu_decl.backends.databricks.jobs.task_settings import Staged, tasks_of
from sgpu_decl.backends.databricks.launching.submit import (
    StagedLaunch,
    notifications,
    present,
    principal,
)
from sgpu_decl.backends.job_backend import JobDescription
from sgpu_decl.config.job import (
    FileArrival,
    Health,
    Job,
    Notify,
    Recipient,
    RunAs,
    TableUpdate,
    Trigger,
)
from sgpu_decl.config.run_blocks import Permission
from sgpu_decl.model.job import ONE, PERMISSIONS
from sgpu_decl.model.jsonable import Json
from sgpu_decl.model.permission_names import PLATFORM_LEVELS
from sgpu_decl.model.target import USER, Mode, short_name


def describe(
    job: Job,
    name: str,
    mode: Mode,
    user: str,
    staged: Mapping[str, Staged],
    applied_title: str = "",
) -> JobDescription:
    """The document of a declared job. Its permissions, budget and notifications win over those of
    its run. Of several runs, those count on which all agree, and no notifications.

    Args:
        name: its key in the file.
        user: who applies it; part of the title and the tags if `mode` is development, and in the
            place of `${user}` in the title.
        staged: what it launches of the project, by the task.
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
    run = staged.get(ONE)
    config = run.config if isinstance(run, StagedLaunch) else None
    of_runs = [one for one in staged.values() if isinstance(one, StagedLaunch)]
    policies = {one.policy for one in of_runs}
    granted = {one.config.permissions for one in of_runs}
    on_finish = job.on_finish or (config.on_finish if config is not None else None)
    permissions = job.permissions
    if "permissions" not in job.model_fields_set and len(granted) == 1:
        (permissions,) = granted
    tasks, environments = tasks_of(job, name, staged)
    status = {"pause_status": "PAUSED" if paused else "UNPAUSED"}
    schedule: dict[str, Json] = {
        "quartz_cron_expression": job.schedule,
        "timezone_id": job.timezone,
        **status,
    }
    mails, webhooks = _notifications(job.notify)
    document: dict[str, Json] = {
        "name": title,
        "max_concurrent_runs": job.max_concurrent_runs,
        "queue": {"enabled": job.queues},
        "tasks": tasks,
        "description": job.description,
        "tags": tags or None,
        "schedule": schedule if job.schedule is not None else None,
        "trigger": {**_trigger(job.trigger), **status} if job.trigger is not None else None,
        "timeout_seconds": max(1, round(job.timeout.seconds)) if job.timeout is not None else None,
        "budget_policy_id": job.budget or (next(iter(policies)) if len(policies) == 1 else None),
        "email_notifications": notifications(on_finish) or mails or None,
        "webhook_notifications": webhooks or None,
        "health": _health(job.health),
        "run_as": _run_as(job.run_as),
        "parameters": {key: {"default": value} for key, value in job.parameters.items()} or None,
        "environments": {key: {"spec": spec} for key, spec in environments.items()} or None,
        PERMISSIONS: _permissions(permissions) if permissions else None,
    }
    kinds = {key: task.kind for key, task in job.tasks.items()}
    return JobDescription(
        title=title,
        document=present(document),
        origins=field_origins(
            name, launches_run=config is not None, kinds=kinds, notify=job.notify is not None
        ),
    )


def _notifications(notify: Notify | None) -> tuple[dict[str, Json], dict[str, Json]]:
    """Who gets mail, and which destinations are told."""
    mails: dict[str, Json] = {}
    webhooks: dict[str, Json] = {}
    for event, name in EVENTS.items() if notify is not None else ():
        recipients: tuple[Recipient, ...] = getattr(notify, name)
        if addresses := [one.email for one in recipients if one.email is not None]:
            mails[event] = list(addresses)
        if ids := [one.webhook for one in recipients if one.webhook is not None]:
            webhooks[event] = [{"id": one} for one in ids]
    return mails, webhooks


def _health(health: Health | None) -> Json:
    if health is None:
        return None
    seconds = round(health.longer_than.seconds)
    return {"rules": [{"metric": SLOW, "op": "GREATER_THAN", "value": seconds}]}


def _run_as(run_as: RunAs | None) -> Json:
    if run_as is None:
        return None
    if run_as.user is not None:
        return {"user_name": run_as.user}
    return {"service_principal_name": run_as.service_principal}


def _named_in(title: str, template: str) -> str | None:
    """Who stands in a title in the place of `${user}` of its template."""
    first, *more = map(re.escape, template.split(USER))
    if not more:
        return None
    found = re.fullmatch(first + r"(\w+)" + r"\1".join(more), title)
    return found[1] if found is not None else None


def _trigger(trigger: Trigger) -> dict[str, Json]:
    if trigger.period is not None:
        interval, unit = trigger.period
        return {"periodic": {"interval": interval, "unit": unit}}
    if (files := trigger.file_arrival) is not None:
        return {"file_arrival": {"url": files.url, **_calm(files)}}
    tables = trigger.table_update
    assert tables is not None  # noqa: S101  a trigger is one of them
    condition = {} if tables.condition == "any_updated" else {"condition": "ALL_UPDATED"}
    return {"table_update": {"table_names": list(tables.tables), **condition, **_calm(tables)}}


def _calm(event: FileArrival | TableUpdate) -> dict[str, Json]:
    """How long nothing happens. Source: `FileArrivalTriggerConfiguration` of the SDK."""
    between, after = event.min_time_between, event.wait_after_last_change
    return present(
        {
            "min_time_between_triggers_seconds": round(between.seconds) if between else None,
            "wait_after_last_change_seconds": round(after.seconds) if after else None,
        }
    )


def _permissions(permissions: tuple[Permission, ...]) -> dict[str, Json]:
    levels: dict[str, dict[str, Json]] = {}
    for permission in permissions:
        for kind, name in principal(permission).items():
            levels.setdefault(kind, {})[name] = PLATFORM_LEVELS.get(
                permission.level, permission.level
            )
    return dict(levels)
