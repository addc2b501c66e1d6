"""The settings of the Jobs API as a document, in which everything has a path, and back.

Of lists whose members have a key the document has mappings, and of the deployments of a task, which
have none, mappings by their index. The mark of a job is a tag, and no part of its document.
"""

from collections.abc import Callable, Mapping
from typing import Any

from sgpu_decl.model.job import OURS, OURS_IN_TASK, PERMISSIONS
from sgpu_decl.model.jsonable import Json
from sgpu_decl.model.permission_names import OWN_HOLDERS

MARK = "sgpu_token"
"""The tag that a job of ours is known by."""

_KEYED = {
    "tasks": "task_key",
    "environments": "environment_key",
    "job_clusters": "job_cluster_key",
    "parameters": "name",
}
DEPLOYMENTS = "deployments"
_TASK = "ai_runtime_task"


def document_of(settings: Mapping[str, Any]) -> dict[str, Json]:
    """The document of the settings that `jobs/get` returns."""
    document = dict(settings)
    for name, key in _KEYED.items():
        listed = document.get(name)
        if isinstance(listed, list) and all(
            isinstance(item, dict) and key in item for item in listed
        ):
            document[name] = {
                str(item[key]): {field: value for field, value in item.items() if field != key}
                for item in listed
            }
    if isinstance(document.get("tasks"), dict):
        document["tasks"] = {
            key: by_index(_in_order(task)) for key, task in document["tasks"].items()
        }
    tags = {key: value for key, value in (document.get("tags") or {}).items() if key != MARK}
    document.pop("tags", None)
    return document | ({"tags": tags} if tags else {})


def settings_of(document: Mapping[str, Json], token: str) -> dict[str, Json]:
    """The settings that the Jobs API is sent, with the mark."""
    settings = {
        key: item for key, item in document.items() if key not in OURS and key != PERMISSIONS
    }
    tasks = settings.get("tasks")
    if isinstance(tasks, Mapping):
        settings["tasks"] = {key: _without_ours(task) for key, task in tasks.items()}
    for name, key in _KEYED.items():
        members = settings.get(name)
        if isinstance(members, Mapping):
            settings[name] = [
                {key: member, **_deployed(item, lambda by_index: list(by_index.values()))}
                for member, item in sorted(members.items())
            ]
    tags = settings.get("tags")
    settings["tags"] = {**(tags if isinstance(tags, Mapping) else {}), MARK: token}
    return settings


def _without_ours(task: Json) -> Json:
    if not isinstance(task, Mapping):
        return task
    return {key: item for key, item in task.items() if key not in OURS_IN_TASK}


def _in_order(task: Any) -> Any:
    """A task with those before it in the order of their names, which means nothing."""
    listed = task.get("depends_on")
    if not listed:
        return task
    return {**task, "depends_on": sorted(listed, key=lambda one: str(one.get("task_key")))}


def by_index(task: Mapping[str, Any]) -> dict[str, Any]:
    """A task as documents have it, from one as the API has it."""
    return _deployed(task, lambda listed: {str(at): item for at, item in enumerate(listed)})


def _deployed(member: Any, change: Callable[[Any], Any]) -> dict[str, Any]:
    """A member of a list with the deployments of a task in another form."""
    if not isinstance(member, Mapping):
        return {}
    task = member.get(_TASK)
    if not isinstance(task, Mapping) or not task.get(DEPLOYMENTS):
        return dict(member)
    return {**member, _TASK: {**task, DEPLOYMENTS: change(task[DEPLOYMENTS])}}


def mark_of(settings: Mapping[str, Any]) -> str | None:
    """The token that a job is marked with."""
    mark = (settings.get("tags") or {}).get(MARK)
    return mark if isinstance(mark, str) else None


def acl_of(document: Mapping[str, Json]) -> list[Json] | None:
    """What a document says of permissions, as the API lists them; None where it says nothing."""
    permissions = document.get(PERMISSIONS)
    if not isinstance(permissions, Mapping):
        return None
    listed: list[Json] = []
    for kind, levels in sorted(permissions.items()):
        for name, level in sorted(levels.items()) if isinstance(levels, Mapping) else ():
            listed.append({kind: name, "permission_level": level})
    return listed


def permissions_of(answer: Mapping[str, Any]) -> tuple[dict[str, Json], dict[str, Json]]:
    """What the API says of permissions: those that were granted, and who owns the job. What is
    inherited from the workspace is neither."""
    granted: dict[str, dict[str, Json]] = {}
    owner: dict[str, Json] = {}
    for entry in answer.get("access_control_list") or ():
        kind = next((name for name in OWN_HOLDERS if entry.get(name)), None)
        own = [item for item in entry.get("all_permissions") or () if not item.get("inherited")]
        for level in (item.get("permission_level") for item in own if kind is not None):
            if level == "IS_OWNER":
                owner = {str(kind): entry[kind], "permission_level": level}
            else:
                granted.setdefault(str(kind), {})[entry[kind]] = level
    return dict(granted), owner
