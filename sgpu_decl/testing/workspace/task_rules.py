"""What the Jobs API refuses in settings of jobs and runs: every problem with its path."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sgpu_decl.model.gpu import ACCELERATORS
from sgpu_decl.testing.workspace.executing.places import workspace_path

__all__ = ["TOKEN_LIMIT", "Problem", "ai_runtime_problems", "environment_problems", "problems"]

TOKEN_LIMIT = 64
_MOST_ACCELERATORS = 1024
_TASK_KEY = re.compile(r"[A-Za-z0-9_-]{1,100}")
_BASE = re.compile(r"workspace-base-environments/databricks_ai_v\d+")
_IMAGE = re.compile(r"[^.:/\s]+\.[^.:/\s]+\.[^.:/\s]+:[^:/\s]+")
_RUN_IF = {
    "ALL_SUCCESS", "ALL_DONE", "NONE_FAILED", "AT_LEAST_ONE_SUCCESS", "ALL_FAILED",
    "AT_LEAST_ONE_FAILED",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Problem:
    """Something that is not accepted."""

    path: str
    message: str


def problems(settings: Mapping[str, Any]) -> Iterator[Problem]:
    """All problems of a job's or a run's settings."""
    environments = settings.get("environments") or []
    yield from environment_problems(environments)
    tasks = settings.get("tasks") or []
    known = {one.get("environment_key"): one for one in environments}
    keys = [task.get("task_key") for task in tasks]
    for key, times in Counter(keys).items():
        if times > 1:
            yield Problem("tasks", f"Task key '{key}' is not unique.")
    for number, task in enumerate(tasks):
        for problem in _task_problems(task, keys, known):
            yield Problem(f"tasks[{number}].{problem.path}", problem.message)
    yield from _not_negative(settings, "timeout_seconds")


def environment_problems(environments: Sequence[Mapping[str, Any]]) -> Iterator[Problem]:
    """Problems of the declared environments."""
    for number, environment in enumerate(environments):
        path = f"environments[{number}]"
        if not environment.get("environment_key"):
            yield Problem(f"{path}.environment_key", "Missing required field: environment_key")
        spec = environment.get("spec") or {}
        selectors = [key for key in ("environment_version", "client") if spec.get(key)]
        if selectors and spec.get("base_environment"):
            yield Problem(
                f"{path}.spec",
                f"Only one of base_environment and {selectors[0]} can be specified.",
            )


def ai_runtime_problems(task: Mapping[str, Any]) -> Iterator[Problem]:
    """Problems of an `ai_runtime_task`, with paths below it."""
    if not task.get("experiment"):
        yield Problem("experiment", "Missing required field: experiment")
    deployments = task.get("deployments") or []
    if len(deployments) != 1:
        message = f"Exactly one deployment must be specified, found {len(deployments)}."
        yield Problem("deployments", message)
    for number, deployment in enumerate(deployments):
        for problem in _deployment_problems(deployment):
            yield Problem(f"deployments[{number}].{problem.path}", problem.message)
    yield from _path_problems(task, "code_source_path")
    compute = (deployments[0].get("compute") or {}) if deployments else {}
    if task.get("priority_class") and not compute.get("provisioned_capacity_id"):
        yield Problem("priority_class", "priority_class requires a provisioned_capacity_id.")


def _deployment_problems(deployment: Mapping[str, Any]) -> Iterator[Problem]:
    if deployment.get("containers"):
        yield Problem("containers", "containers are not executed by this emulator.")
    elif not deployment.get("command_path"):
        yield Problem("command_path", "Missing required field: command_path")
    yield from _path_problems(deployment, "command_path")
    compute = deployment.get("compute") or {}
    kind, count = compute.get("accelerator_type"), compute.get("accelerator_count")
    if kind not in ACCELERATORS:
        yield Problem(
            "compute.accelerator_type",
            f"Unsupported accelerator type '{kind}'. Supported: {', '.join(ACCELERATORS)}.",
        )
    if not isinstance(count, int) or count < 1:
        yield Problem("compute.accelerator_count", "accelerator_count must be at least 1.")
        return
    if count > _MOST_ACCELERATORS:
        message = f"accelerator_count must be at most {_MOST_ACCELERATORS}, found {count}."
        yield Problem("compute.accelerator_count", message)
    per_node = ACCELERATORS[str(kind)][1] if kind in ACCELERATORS else 1
    if count % per_node:
        yield Problem(
            "compute.accelerator_count",
            f"accelerator_count must be a multiple of {per_node} for {kind}, found {count}.",
        )


def _path_problems(holder: Mapping[str, Any], name: str) -> Iterator[Problem]:
    path = holder.get(name)
    if path:
        try:
            workspace_path(path)
        except ValueError as error:
            yield Problem(name, f"Invalid {name}: {error}.")


def _task_problems(
    task: Mapping[str, Any], keys: Sequence[object], environments: Mapping[object, Any]
) -> Iterator[Problem]:
    key = task.get("task_key")
    if not isinstance(key, str) or not _TASK_KEY.fullmatch(key):
        yield Problem(
            "task_key", f"Invalid task key '{key}': letters, digits, '-' and '_', at most 100."
        )
    for upstream in task.get("depends_on") or ():
        if upstream.get("task_key") not in keys or upstream.get("task_key") == key:
            yield Problem("depends_on", f"Task '{key}' depends on '{upstream.get('task_key')}'.")
    if task.get("run_if", "ALL_SUCCESS") not in _RUN_IF:
        yield Problem("run_if", f"Unknown value '{task['run_if']}'.")
    kinds = [name for name in task if name.endswith("_task")]
    if len(kinds) != 1:
        message = f"Exactly one task type must be specified, found {sorted(kinds)}."
        yield Problem("task_type", message)
    yield from _not_negative(task, "timeout_seconds")
    if int(task.get("max_retries") or 0) < -1:
        yield Problem("max_retries", "max_retries must be -1 or more.")
    accelerator = (task.get("compute") or {}).get("hardware_accelerator")
    if accelerator and accelerator not in ACCELERATORS:
        yield Problem(
            "compute.hardware_accelerator", f"Unsupported hardware accelerator '{accelerator}'."
        )
    yield from _environment_of_task(task, environments)


def _environment_of_task(
    task: Mapping[str, Any], environments: Mapping[object, Any]
) -> Iterator[Problem]:
    key = task.get("environment_key")
    asked = task.get("ai_runtime_task")
    if key is not None and key not in environments:
        yield Problem("environment_key", f"Environment '{key}' is not defined.")
    if asked is None:
        return
    for problem in ai_runtime_problems(asked):
        yield Problem(f"ai_runtime_task.{problem.path}", problem.message)
    image = asked.get("unity_catalog_image_path")
    if image is not None:
        if not _IMAGE.fullmatch(str(image)):
            message = f"'{image}' is not <catalog>.<schema>.<image>:<tag>."
            yield Problem("ai_runtime_task.unity_catalog_image_path", message)
        if key is not None:
            yield Problem("environment_key", "A task with an image has no environment.")
        return
    if key is None:
        yield Problem("environment_key", "An environment is required for ai_runtime_task.")
        return
    base = ((environments.get(key) or {}).get("spec") or {}).get("base_environment")
    if base and not _BASE.fullmatch(base):
        yield Problem(
            "environment_key",
            f"ai_runtime_task supports only the databricks-ai base environment, found '{base}'.",
        )


def _not_negative(holder: Mapping[str, Any], name: str) -> Iterator[Problem]:
    value = holder.get(name)
    if value is not None and (not isinstance(value, int) or value < 0):
        yield Problem(name, f"{name} must be a number of seconds, 0 or more.")
