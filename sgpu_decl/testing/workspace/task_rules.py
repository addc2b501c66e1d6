"""What is refused in settings of jobs and runs: every problem with its path.

The one list for jobs that are made or changed, runs that are submitted, launches of jobs, and
`config:validate`.
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from typing import Any

from sgpu_decl.model.assumptions import Profile
from sgpu_decl.testing.workspace.accelerators import ACCELERATORS
from sgpu_decl.testing.workspace.executing.loops import LOOP
from sgpu_decl.testing.workspace.executing.places import workspace_path
from sgpu_decl.testing.workspace.offers import Offers

__all__ = [
    "TOKEN_LIMIT",
    "TaskProblem",
    "Terms",
    "ai_runtime_problems",
    "problems",
]

TOKEN_LIMIT = 64
_MOST_ACCELERATORS = 1024
_TASK_KEY = re.compile(r"[A-Za-z0-9_-]{1,100}")
_BASES = "workspace-base-environments/"
_BASE = re.compile(rf"{_BASES}databricks_ai_v\d+")
_UUID = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_IMAGE = re.compile(r"[^.:/\s]+\.[^.:/\s]+\.[^.:/\s]+:[^:/\s]+")
_RUN_IF = {
    "ALL_SUCCESS", "ALL_DONE", "NONE_FAILED", "AT_LEAST_ONE_SUCCESS", "ALL_FAILED",
    "AT_LEAST_ONE_FAILED",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class TaskProblem:
    """Something that is not accepted."""

    path: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """What rules depend on: how the workspace behaves, and what it has."""

    profile: Profile
    offers: Offers


def problems(settings: Mapping[str, Any], terms: Terms) -> Iterator[TaskProblem]:
    """All problems of a job's or a run's settings."""
    environments = settings.get("environments") or []
    yield from _environment_problems(environments, terms.offers)
    tasks = settings.get("tasks") or []
    known = {one.get("environment_key"): one for one in environments}
    keys = [task.get("task_key") for task in tasks]
    for key, times in Counter(keys).items():
        if times > 1:
            yield TaskProblem("tasks", f"Task key '{key}' is not unique.")
    yield from _cycles(tasks)
    for number, task in enumerate(tasks):
        for problem in _task_problems(task, keys, known, terms):
            yield TaskProblem(f"tasks[{number}].{problem.path}", problem.message)
    yield from _not_negative(settings, "timeout_seconds")
    policy = settings.get("budget_policy_id")
    if policy is not None and not _UUID.fullmatch(str(policy)):
        yield TaskProblem("budget_policy_id", f"'{policy}' is not a valid policy id.")


def _cycles(tasks: Sequence[Mapping[str, Any]]) -> Iterator[TaskProblem]:
    before = {
        task.get("task_key"): [one.get("task_key") for one in task.get("depends_on") or ()]
        for task in tasks
    }
    try:
        TopologicalSorter(before).prepare()
    except CycleError as error:
        path = " -> ".join(map(str, error.args[1]))
        yield TaskProblem("tasks", f"Tasks depend on each other in a cycle: {path}.")


def _environment_problems(
    environments: Sequence[Mapping[str, Any]], offers: Offers
) -> Iterator[TaskProblem]:
    for number, environment in enumerate(environments):
        path = f"environments[{number}]"
        if not environment.get("environment_key"):
            yield TaskProblem(f"{path}.environment_key", "Missing required field: environment_key")
        spec = environment.get("spec") or {}
        base = str(spec.get("base_environment") or "")
        selectors = [key for key in ("environment_version", "client") if spec.get(key)]
        if selectors and base:
            yield TaskProblem(
                f"{path}.spec",
                f"Only one of base_environment and {selectors[0]} can be specified.",
            )
        # Evidence: A12: the platform's validators refuse what the workspace does not have.
        for selector in selectors:
            if spec[selector] not in offers.environment_versions:
                message = f"Environment version {spec[selector]} is not supported."
                yield TaskProblem(f"{path}.spec.{selector}", message)
        if base.startswith(_BASES) and base.removeprefix(_BASES) not in offers.base_environments:
            message = f"Base environment {base} does not exist."
            yield TaskProblem(f"{path}.spec.base_environment", message)


def ai_runtime_problems(task: Mapping[str, Any], terms: Terms) -> Iterator[TaskProblem]:
    """Problems of an `ai_runtime_task` whatever its environment, with paths below it."""
    profile = terms.profile
    if not task.get("experiment"):
        yield TaskProblem("experiment", "Missing required field: experiment")
    deployments = task.get("deployments") or []
    if len(deployments) != 1:
        message = f"Exactly one deployment must be specified, found {len(deployments)}."
        yield TaskProblem("deployments", message)
    for number, deployment in enumerate(deployments):
        for problem in _deployment_problems(deployment, terms):
            yield TaskProblem(f"deployments[{number}].{problem.path}", problem.message)
    yield from _path_problems(task, "code_source_path")
    code = str(task.get("code_source_path"))
    if code.startswith("/Volumes/") and not profile.flag("code-on-volume"):
        message = f"code_source_path must be below /Workspace, found '{code}'."
        yield TaskProblem("code_source_path", message)
    directory = task.get("mlflow_experiment_directory")
    root = "/Workspace/" if profile.flag("experiment-below-workspace") else "/"
    if directory and not f"{directory}/".startswith(root):
        # Evidence: A2, A12: the SDK and both clients say "Must start with `/Workspace`".
        asked = root.rstrip("/") or "/"
        message = f"mlflow_experiment_directory must start with {asked}, found '{directory}'."
        yield TaskProblem("mlflow_experiment_directory", message)
    location = task.get("mlflow_artifact_location")
    if location and (":" not in location or location.lower().startswith("file:")):
        # Evidence: A12: `databricks-air` says that MLflow refuses one without a scheme.
        message = f"mlflow_artifact_location must be a URI of durable storage, found '{location}'."
        yield TaskProblem("mlflow_artifact_location", message)
    priority = task.get("priority_class")
    priorities = sorted(profile.texts("priorities"))  # evidence: A16: the SDK's enum
    if priority and priority not in priorities:
        yield TaskProblem("priority_class", f"Unknown value '{priority}' of {priorities}.")
    compute = (deployments[0].get("compute") or {}) if deployments else {}
    if task.get("priority_class") and not compute.get("provisioned_capacity_id"):
        yield TaskProblem("priority_class", "priority_class requires a provisioned_capacity_id.")
    image = task.get("unity_catalog_image_path")
    if image is not None and not _IMAGE.fullmatch(str(image)):
        message = f"'{image}' is not <catalog>.<schema>.<image>:<tag>."
        yield TaskProblem("unity_catalog_image_path", message)


def _deployment_problems(deployment: Mapping[str, Any], terms: Terms) -> Iterator[TaskProblem]:
    if deployment.get("containers"):
        yield TaskProblem("containers", "containers are not executed by this emulator.")
    elif not deployment.get("command_path"):
        yield TaskProblem("command_path", "Missing required field: command_path")
    yield from _path_problems(deployment, "command_path")
    on_volume = str(deployment.get("command_path")).startswith("/Volumes/")
    if on_volume and not terms.profile.flag("command-on-volume"):
        # Evidence: A3: the SDK calls it the "Workspace path of the script".
        message = f"command_path must be below /Workspace, found '{deployment['command_path']}'."
        yield TaskProblem("command_path", message)
    compute = deployment.get("compute") or {}
    kind, count = compute.get("accelerator_type"), compute.get("accelerator_count")
    yield from _accelerator_problems("compute.accelerator_type", kind, terms.offers)
    pool = compute.get("provisioned_capacity_id")
    if pool and pool not in {capacity.id for capacity in terms.offers.capacities}:
        message = f"Provisioned capacity {pool} does not exist."
        yield TaskProblem("compute.provisioned_capacity_id", message)
    if not isinstance(count, int) or count < 1:
        yield TaskProblem("compute.accelerator_count", "accelerator_count must be at least 1.")
        return
    if count > _MOST_ACCELERATORS:
        message = f"accelerator_count must be at most {_MOST_ACCELERATORS}, found {count}."
        yield TaskProblem("compute.accelerator_count", message)
    per_node = ACCELERATORS[str(kind)] if kind in ACCELERATORS else 1
    if count % per_node:
        yield TaskProblem(
            "compute.accelerator_count",
            f"accelerator_count must be a multiple of {per_node} for {kind}, found {count}.",
        )


def _accelerator_problems(path: str, kind: object, offers: Offers) -> Iterator[TaskProblem]:
    if kind not in ACCELERATORS:
        message = f"Unsupported accelerator type '{kind}'. Supported: {', '.join(ACCELERATORS)}."
        yield TaskProblem(path, message)
    elif kind not in offers.accelerators:
        message = f"Accelerator type {kind} is not available in this workspace."
        yield TaskProblem(path, message)


def _path_problems(holder: Mapping[str, Any], name: str) -> Iterator[TaskProblem]:
    path = holder.get(name)
    if path:
        try:
            workspace_path(path)
        except ValueError as error:
            yield TaskProblem(name, f"Invalid {name}: {error}.")


def _task_problems(
    task: Mapping[str, Any],
    keys: Sequence[object],
    environments: Mapping[object, Any],
    terms: Terms,
) -> Iterator[TaskProblem]:
    key = task.get("task_key")
    if not isinstance(key, str) or not _TASK_KEY.fullmatch(key):
        yield TaskProblem(
            "task_key", f"Invalid task key '{key}': letters, digits, '-' and '_', at most 100."
        )
    for upstream in task.get("depends_on") or ():
        if upstream.get("task_key") not in keys or upstream.get("task_key") == key:
            yield TaskProblem(
                "depends_on", f"Task '{key}' depends on '{upstream.get('task_key')}'."
            )
    if task.get("run_if", "ALL_SUCCESS") not in _RUN_IF:
        yield TaskProblem("run_if", f"Unknown value '{task['run_if']}'.")
    kinds = [name for name in task if name.endswith("_task")]
    if len(kinds) != 1:
        message = f"Exactly one task type must be specified, found {sorted(kinds)}."
        yield TaskProblem("task_type", message)
    yield from _not_negative(task, "timeout_seconds")
    if int(task.get("max_retries") or 0) < -1:
        yield TaskProblem("max_retries", "max_retries must be -1 or more.")
    accelerator = (task.get("compute") or {}).get("hardware_accelerator")
    if accelerator:
        yield from _accelerator_problems("compute.hardware_accelerator", accelerator, terms.offers)
    yield from _environment_of_task(task, environments, terms)
    if LOOP in task:
        yield from _loop_problems(task[LOOP], keys, environments, terms)


def _loop_problems(
    loop: Mapping[str, Any],
    keys: Sequence[object],
    environments: Mapping[object, Any],
    terms: Terms,
) -> Iterator[TaskProblem]:
    """Source: https://docs.databricks.com/aws/en/jobs/for-each: any kind of task but a loop."""
    for field in ("inputs", "task"):
        if not loop.get(field):
            yield TaskProblem(f"{LOOP}.{field}", f"Missing required field: {field}")
            return
    nested = loop["task"]
    key = nested.get("task_key")
    if key in keys:
        yield TaskProblem(f"{LOOP}.task.task_key", f"Task key '{key}' is not unique.")
    if LOOP in nested:
        yield TaskProblem(f"{LOOP}.task", "A For each task cannot be nested in another.")
        return
    for problem in _task_problems(nested, (), environments, terms):
        yield TaskProblem(f"{LOOP}.task.{problem.path}", problem.message)
    concurrency = loop.get("concurrency")
    if concurrency is not None and (not isinstance(concurrency, int) or concurrency < 1):
        yield TaskProblem(f"{LOOP}.concurrency", "concurrency must be 1 or more.")


def _environment_of_task(
    task: Mapping[str, Any], environments: Mapping[object, Any], terms: Terms
) -> Iterator[TaskProblem]:
    key = task.get("environment_key")
    asked = task.get("ai_runtime_task")
    if key is not None and key not in environments:
        yield TaskProblem("environment_key", f"Environment '{key}' is not defined.")
    if asked is None:
        return
    for problem in ai_runtime_problems(asked, terms):
        yield TaskProblem(f"ai_runtime_task.{problem.path}", problem.message)
    spec = (environments.get(key) or {}).get("spec") or {} if key is not None else None
    for message in _choice_problems(asked, spec, terms.profile):
        yield TaskProblem("environment_key", message)


def _choice_problems(
    task: Mapping[str, Any], spec: Mapping[str, Any] | None, profile: Profile
) -> Iterator[str]:
    image = task.get("unity_catalog_image_path")
    # With an image too: the task is registered as one that requires an environment (evidence: A1).
    with_image = profile.flag("image-with-environment")
    if image is not None and spec is not None and not with_image:
        yield "A task with an image has no environment."
    if spec is None:
        if image is None or with_image:
            yield "An environment is required for ai_runtime_task."
        return
    base = spec.get("base_environment")
    if base and not profile.flag("managed-base"):
        # Evidence: C6: the words of the client for a workspace without this feature.
        yield f"Only custom base environments are supported, found '{base}'."
    elif base and not _BASE.fullmatch(base):
        yield f"ai_runtime_task supports only the databricks-ai base environment, found '{base}'."


def _not_negative(holder: Mapping[str, Any], name: str) -> Iterator[TaskProblem]:
    value = holder.get(name)
    if value is not None and (not isinstance(value, int) or value < 0):
        yield TaskProblem(name, f"{name} must be a number of seconds, 0 or more.")
