"""What a workspace makes of a job's settings: tables, with a reason beside each entry."""

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, cast

from sgpu_decl.model.job import TASKS, Anything, JobDefault, JobField, JobRule, JobRules, JobStart
from sgpu_decl.model.jsonable import Json
from sgpu_decl.model.plan import Reason

_ID = re.compile(r"[0-9]{1,19}")
_HOME = re.compile(r"(?:/Workspace)?/Users/([^/]+)/")
_ANY = (Anything.ANYTHING,)
_WRITTEN = JobDefault((False,), "its default, in plain text")

_DEFAULTS: Mapping[str, JobDefault] = MappingProxyType(
    {
        "format": JobDefault(_ANY, "says how the answer is laid out"),
        "edit_mode": JobDefault(("EDITABLE",), "jobs may be edited in the workspace unless locked"),
        "max_concurrent_runs": JobDefault((1,), "one launch at a time unless asked"),
        "timeout_seconds": JobDefault((0,), "0 is no limit"),
        "queue.enabled": JobDefault(
            (True,), "jobs of newer API versions queue unless told otherwise"
        ),
        "run_as": JobDefault(_ANY, "who applies a job is who it runs as, unless that is set there"),
        "ownership": JobDefault(_ANY, "says who made the job and who owns it, and is no setting"),
        "parent_path": JobDefault(_ANY, "where the workspace lists the job"),
        "performance_target": JobDefault(
            ("PERFORMANCE_OPTIMIZED",), "how serverless compute starts unless asked"
        ),
        "budget_policy_id": JobDefault(_ANY, "the workspace may choose a policy for its users"),
        "usage_policy_id": JobDefault(_ANY, "the newer name of the budget policy"),
        "email_notifications.no_alert_for_skipped_runs": _WRITTEN,
        "notification_settings.no_alert_for_skipped_runs": _WRITTEN,
        "notification_settings.no_alert_for_canceled_runs": _WRITTEN,
        "schedule.pause_status": JobDefault(
            ("UNPAUSED",), "what has a schedule runs unless paused"
        ),
        "schedule.timezone_id": JobDefault(("UTC",), "its default, written"),
        "trigger.pause_status": JobDefault(("UNPAUSED",), "what has a trigger runs unless paused"),
        "trigger.table_update.condition": JobDefault(
            ("ANY_UPDATED",), "one table that changed is enough unless asked"
        ),
        "tasks.*.run_if": JobDefault(("ALL_SUCCESS",), "a task runs if all before it succeeded"),
        "tasks.*.timeout_seconds": JobDefault((0,), "0 is no limit"),
        "tasks.*.max_retries": JobDefault((0,), "no retry unless asked"),
        "tasks.*.min_retry_interval_millis": JobDefault((0,), "at once"),
        "tasks.*.retry_on_timeout": _WRITTEN,
        "tasks.*.disabled": _WRITTEN,
        "tasks.*.email_notifications.no_alert_for_skipped_runs": _WRITTEN,
        "tasks.*.ai_runtime_task.mlflow_experiment_directory": JobDefault(
            _ANY, "where the platform keeps the experiment unless asked"
        ),
        "tasks.*.notebook_task.source": JobDefault(
            ("WORKSPACE",), "notebooks lie in the workspace where no repository is named"
        ),
        "tasks.*.spark_python_task.source": JobDefault(
            ("WORKSPACE",), "Python files lie in the workspace where no repository is named"
        ),
        "environments.*.spec.client": JobDefault(
            _ANY, "the older name of the environment's version"
        ),
    }
)

_REASONS: Mapping[str, JobRule] = MappingProxyType(
    {
        "tasks.*.ai_runtime_task.code_source_path": JobRule(
            Reason.CODE_CHANGED, "the path is named after the code's digest"
        ),
        "tasks.*.ai_runtime_task.deployments": JobRule(
            Reason.CONFIG_CHANGED, "the command's path is named after what it launches"
        ),
        "environments": JobRule(Reason.ENVIRONMENT_CHANGED, "packages are what is installed"),
        "tasks.*.environment_key": JobRule(Reason.ENVIRONMENT_CHANGED, "it names the packages"),
    }
)


def _start(document: Mapping[str, Json]) -> JobStart:
    block = document.get("schedule") or document.get("trigger") or document.get("continuous")
    if not block:
        return JobStart(trigger={} if "trigger" in document else None)
    start = cast("Mapping[str, Any]", block)
    trigger = {key: value for key, value in start.items() if key != "pause_status"}
    return JobStart(
        schedule=start.get("quartz_cron_expression"),
        timezone=start.get("timezone_id"),
        trigger=trigger if "trigger" in document else None,
        paused=start.get("pause_status") == "PAUSED",
    )


def _manager(document: Mapping[str, Json]) -> str | None:
    """`deployment` is what the tool that made a job wrote into it; the platform writes it into its
    own jobs."""
    deployment = document.get("deployment")
    if not isinstance(deployment, Mapping) or not deployment.get("kind"):
        return None
    kind = str(deployment["kind"])
    if kind == "SYSTEM_MANAGED":
        return "the platform itself, which lets nobody change it"
    tool = "a bundle of `databricks bundle`" if kind == "BUNDLE" else f"a deployment of `{kind}`"
    file = deployment.get("metadata_file_path")
    return f"{tool}, whose metadata are in `{file}`" if file else tool


def _field(path: str, settings: Mapping[str, Json]) -> JobField:
    from sgpu_decl.backends.databricks.jobs.job_fields import job_field  # with pydantic

    return job_field(path, settings)


def _setting_paths(field: str, name: str) -> tuple[str, ...]:
    from sgpu_decl.backends.databricks.jobs.job_fields import setting_paths  # with pydantic

    return setting_paths(field, name)


def _staged_by(document: Mapping[str, Json]) -> str | None:
    from sgpu_decl.backends.databricks.jobs.task_settings import places_in  # with pydantic

    tasks = document.get(TASKS)
    for key in tasks if isinstance(tasks, Mapping) else ():
        found = _HOME.match(places_in(document, key).commands)
        if found is not None:
            return found[1]
    return None


RULES = JobRules(
    defaults=_DEFAULTS,
    reasons=_REASONS,
    task="tasks",
    of_run=frozenset({"tasks", "environments"}),
    of_notebook=frozenset({"notebook_task", "compute"}),
    order=frozenset({"depends_on", "run_if"}),
    start=_start,
    link=lambda workspace, job_id: f"{workspace}/jobs/{job_id}",
    changing=frozenset({"CAN_MANAGE"}),
    field=_field,
    setting_paths=_setting_paths,
    staged_by=_staged_by,
    is_id=lambda text: _ID.fullmatch(text) is not None,
    manager=_manager,
)
