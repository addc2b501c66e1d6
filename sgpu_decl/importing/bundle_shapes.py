"""Settings of a job in a bundle that the platform would refuse: import says why, and loses them."""

from collections.abc import Mapping

from sgpu_decl.model.jsonable import Json

__all__ = ["misshapen", "misshapen_task"]

_LISTS = {
    "environments": "environment_key", "parameters": "name", "job_clusters": "job_cluster_key",
    "permissions": "level",
}  # fmt: skip
_MAPPINGS = (
    "schedule", "trigger", "health", "run_as", "queue", "email_notifications",
    "webhook_notifications", "notification_settings", "git_source", "continuous", "tags",
)  # fmt: skip


def misshapen(key: str, value: Json) -> str | None:
    """Why a setting is not as the platform has it."""
    if key in _MAPPINGS and not isinstance(value, dict):
        return "it is no mapping"
    if key == "tags" and isinstance(value, dict):
        for tag, text in value.items():
            if isinstance(text, dict | list):
                return f"`{tag}` is no text"
    if key.endswith("_notifications") and isinstance(value, dict):
        for event, listed in value.items():
            whole = isinstance(listed, list) or event.startswith("no_alert")
            entries = listed if isinstance(listed, list) else []
            hooks = key.startswith("webhook")
            if not whole or (
                hooks and not all(isinstance(one, dict) and "id" in one for one in entries)
            ):
                return f"`{event}` is no list of recipients"
    if key in _LISTS:
        entries = value if isinstance(value, list) else [None]
        if not all(isinstance(one, dict) and _LISTS[key] in one for one in entries):
            return f"it is no list of mappings with `{_LISTS[key]}`"
        if key == "parameters" and not all(
            isinstance(one, dict) and "default" in one for one in entries
        ):
            return "each parameter needs a `default`"
    return None


def misshapen_task(task: Mapping[str, Json]) -> str | None:
    """Why a task is not as the platform has it."""
    before = task.get("depends_on", [])
    if not isinstance(before, list) or not all(
        isinstance(one, dict) and "task_key" in one for one in before
    ):
        return "`depends_on` is no list of mappings with `task_key`"
    for kind in ("notebook_task", "spark_python_task", "compute"):
        if kind in task and not isinstance(task[kind], dict):
            return f"`{kind}` is no mapping"
    if isinstance(block := task.get("notebook_task"), dict) and "notebook_path" not in block:
        return "`notebook_task` has no `notebook_path`"
    return None
