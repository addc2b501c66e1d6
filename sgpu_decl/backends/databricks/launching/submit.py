"""From a run's config to the body of `runs/submit` of the Jobs API: pure functions."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from sgpu_decl.agent.attempt.upstreams import listed
from sgpu_decl.agent.retry_rule import new_nodes
from sgpu_decl.backends.databricks.bases import base_named
from sgpu_decl.backends.databricks.launching.experiment import experiment_of, platform_name
from sgpu_decl.backends.databricks.planning.machines import machines_of, refusal_of
from sgpu_decl.config.on_finish import Mails
from sgpu_decl.config.run import RunConfig
from sgpu_decl.config.run_blocks import Permission
from sgpu_decl.errors import BackendError
from sgpu_decl.model.attempt import AttemptRef
from sgpu_decl.model.jsonable import Json, canonical
from sgpu_decl.model.permission_names import OWN_HOLDERS, PLATFORM_LEVELS

LONGEST = 7 * 24 * 3600
"""Seconds that the platform lets a run last at most."""

QUEUE = 24 * 3600
"""Seconds that an attempt may wait for GPUs where `startup_timeout` does not say."""

ENDING = 600
"""Seconds beyond an attempt's own limit, in which the agent ends it and brings back all."""

DEFAULT_BASE = "gpu-4"
"""The base environment where the YAML names none: the newest whose packages are known."""

ENVIRONMENT = "default"
"""The key of the one environment of a run or a job. Every `ai_runtime_task` refers to one, a task
with an image too: the platform refuses it otherwise."""

_LOWEST = MappingProxyType({"GPU_8xB300": 6})  # environment versions; the others are in all

YAML_FIELDS = {
    "accelerator_type": "type",
    "accelerator_count": "gpus",
    "provisioned_capacity_id": "pool",
    "priority_class": "priority",
    "experiment": "mlflow.experiment",
    "mlflow_experiment_directory": "mlflow.experiment",
    "mlflow_run": "mlflow.run_name",
    "mlflow_artifact_location": "mlflow.artifact_location",
    "unity_catalog_image_path": "image",
    "environment_version": "env.base",
    "base_environment": "env.base",
    "dependencies": "env.dependencies",
    "timeout_minutes": "timeout",
    "max_retries": "retry.max",
    "usage_policy_id": "budget",
    "usage_policy_name": "budget",
    "env_variables": "env.variables",
    "secrets": "env.secrets",
}
"""Fields of the request to the YAML's that they are made of."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StagedLaunch:
    """What requests say of a launch: its config, its placement, which is the id of the pool that
    GPUs come from, and what was staged: the folder of its command, the folder of experiments that
    name none, the archive of its code, the id of its budget policy."""

    config: RunConfig
    folder: str
    experiments: str
    placement: str | None = None
    code: str | None = None
    policy: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StagedTask:
    """A launch that is one task of several: its key, and the keys of those that must have succeeded
    before it starts."""

    staged: StagedLaunch
    ref: AttemptRef
    key: str
    after: Sequence[str] = ()


def submit_request(staged: StagedLaunch, *, ref: AttemptRef, token: str) -> dict[str, Json]:
    """Return the body of the request. Its token makes it one run however often it is sent.

    Raises:
        BackendError: the platform has no such machines.
    """
    config = staged.config
    task = StagedTask(staged=staged, ref=ref, key=platform_name(ref.address.name))
    body: dict[str, Json] = {
        "run_name": str(ref),
        "idempotency_token": token,
        "timeout_seconds": timeout_of(config, attempts=1 + retries_of(config)),
        "environments": [{"environment_key": ENVIRONMENT, "spec": environment_of(config)}],
        "tasks": [_submitted_task(task, ENVIRONMENT)],
        **_of_the_run(staged),
    }
    if mails := notifications(config.on_finish):
        body["email_notifications"] = mails
    return body


def joined_request(tasks: Sequence[StagedTask], *, token: str) -> dict[str, Json]:
    """The same for several launches. Each task has its own limit of time, for each attempt of the
    platform; the run as a whole has none, since one waits for the other.

    Raises:
        BackendError: the platform has no such machines.
    """
    submitted: list[Json] = []
    environments: dict[str, Json] = {}  # by their content: equal ones are one
    for task in tasks:
        config = task.staged.config
        spec = environment_of(config)
        known = environments.setdefault(
            canonical(spec),
            {"environment_key": f"environment-{len(environments) + 1}", "spec": spec},
        )
        assert isinstance(known, dict)  # noqa: S101  as made above
        body = _submitted_task(task, str(known["environment_key"]))
        body["timeout_seconds"] = timeout_of(config)
        if task.after:
            body["depends_on"] = [{"task_key": key} for key in task.after]
        if mails := notifications(config.on_finish):
            body["email_notifications"] = mails
        submitted.append(body)
    return {
        "run_name": listed([str(task.ref) for task in tasks]),
        "idempotency_token": token,
        "environments": [*environments.values()],
        "tasks": submitted,
        **_of_the_run(tasks[0].staged),
    }


def _submitted_task(task: StagedTask, environment: str) -> dict[str, Json]:
    """A task of a run that is submitted. `environment` is the key of its environment."""
    run_name = f"{task.ref.address.folder}-{task.ref.number}"
    return {
        "task_key": task.key,
        "run_if": "ALL_SUCCESS",
        "environment_key": environment,
        "ai_runtime_task": task_of(task.staged, run_name=run_name),
        "max_retries": retries_of(task.staged.config),
    }


def _of_the_run(staged: StagedLaunch) -> dict[str, Json]:
    """What belongs to a run as a whole, and not to its tasks."""
    fields: dict[str, Json] = {}
    if staged.config.permissions:
        fields["access_control_list"] = access_list(staged.config.permissions, PLATFORM_LEVELS)
    if staged.policy is not None:
        fields["budget_policy_id"] = staged.policy
    return fields


def task_of(staged: StagedLaunch, *, run_name: str) -> dict[str, Json]:
    """Return the `ai_runtime_task`.

    Args:
        run_name: what its MLflow run is called where the config does not say.

    Raises:
        BackendError: the platform has no such machines.
    """
    config = staged.config
    machines = machines_of(config)
    if machines is None:
        raise BackendError(
            f"Databricks has no machines for {config.gpus} GPUs of type `{config.type.name}`",
            hint=refusal_of(config)[1],
            code="no_such_machines",
            field="type",
        )
    compute: dict[str, Json] = {
        "accelerator_type": machines.accelerator,
        "accelerator_count": machines.gpus,
        "provisioned_capacity_id": staged.placement,
    }
    command = f"{staged.folder}/command.sh"
    experiment = experiment_of(config, staged.experiments)
    location = config.mlflow.artifact_location
    task: dict[str, Json] = {
        "experiment": experiment.name,
        "mlflow_experiment_directory": experiment.folder,
        "mlflow_run": platform_name(config.mlflow.run_name or run_name),
        "deployments": [{"command_path": command, "compute": present(compute)}],
        "mlflow_artifact_location": artifact_uri(location) if location is not None else None,
        "code_source_path": staged.code,
        "priority_class": config.priority.upper() if config.priority is not None else None,
        "unity_catalog_image_path": config.image,
    }
    return present(task)


def present(fields: Mapping[str, Json]) -> dict[str, Json]:
    """Without the fields that say nothing."""
    return {name: value for name, value in fields.items() if value is not None}


def retries_of(config: RunConfig) -> int:
    """How often the platform may bring new nodes. The node agent knows which failures are worth
    that; ranks on nodes that are there yet it starts again by itself."""
    return new_nodes({"max": config.retry.max, "on": config.retry.on})


def ended_early(config: RunConfig) -> bool:
    """Whether a run is cancelled once it has failed for good, before the platform brings it nodes
    again. For a run that was cancelled the platform sends no mail `on_failure` (only for
    `INTERNAL_ERROR`, `FAILED` and `TIMED_OUT`), so a run that asks for that mail is not."""
    mails = config.on_finish is not None and bool(config.on_finish.failure)
    return retries_of(config) > 0 and not mails


def lowest_version(config: RunConfig) -> int | None:
    """The first environment version that has its GPUs, where not all have."""
    machines = machines_of(config)
    return _LOWEST.get(machines.accelerator) if machines is not None else None


def base_of(config: RunConfig) -> str:
    """The base environment of a run: the one that it names, or else the default for its GPUs."""
    lowest = lowest_version(config)
    return config.env.base or (DEFAULT_BASE if lowest is None else f"gpu-{lowest}")


def has_managed_base(config: RunConfig) -> bool:
    """Whether the run asks for a base of the family `ai`, an environment with torch, or for one
    that a workspace defines."""
    base = base_named(base_of(config))
    return base is not None and base.base_environment is not None


def environment_of(config: RunConfig) -> dict[str, Json]:
    """The `spec` of the environment of a run, as `environment_spec`."""
    return environment_spec(base_of(config), config.env.dependencies or ())


def environment_spec(name: str, dependencies: Sequence[str]) -> dict[str, Json]:
    """The `spec` of an environment: a version or a base environment. The platform refuses both.

    Args:
        name: of a base environment, as `env.base` has it.

    Raises:
        BackendError: tasks cannot choose that base.
    """
    base = base_named(name)
    if base is None or not base.for_tasks:
        raise BackendError(
            f"tasks cannot choose the base environment `{name}`",
            hint="use `gpu-4`, or a later one",
            code="unknown_base",
            field="env.base",
        )
    spec: dict[str, Json] = (
        {"environment_version": base.environment_version}
        if base.base_environment is None
        else {"base_environment": base.base_environment}
    )
    return {**spec, "dependencies": [*dependencies]} if dependencies else spec


def timeout_of(config: RunConfig, *, attempts: int = 1) -> int:
    """Seconds that the platform gives the run. It counts the wait for GPUs too, so this is an outer
    limit, with time for the queue: the agent stops the ranks when their own time is over.

    Args:
        attempts: how many of the platform's it is for, each with a wait of its own. The limit of a
            task is for each attempt, that of a run may be for all.
    """
    if config.timeout is None:
        return LONGEST
    queue = config.startup_timeout.seconds if config.startup_timeout else QUEUE
    return min(LONGEST, attempts * (math.ceil(config.timeout.seconds + queue) + ENDING))


def principal(permission: Permission) -> dict[str, str]:
    """Who a permission is for, in an entry of an access list."""
    names = {theirs: getattr(permission, ours) for theirs, ours in OWN_HOLDERS.items()}
    return {kind: name for kind, name in names.items() if name}


def access_list(permissions: Sequence[Permission], levels: Mapping[str, str]) -> list[Json]:
    """The access list for permissions. `levels` are the platform's names of their levels; of
    others, it decides."""
    return [
        {
            **principal(permission),
            "permission_level": levels.get(permission.level, permission.level),
        }
        for permission in permissions
    ]


def notifications(on_finish: Mails | None) -> dict[str, Json]:
    """Who gets a mail when a run or a job ends; empty where nobody does."""
    if on_finish is None:
        return {}
    mails = {"on_success": on_finish.success, "on_failure": on_finish.failure}
    return {event: list(addresses) for event, addresses in mails.items() if addresses}


def artifact_uri(location: str) -> str:
    """As the platform's clients write it: a volume is `dbfs:/Volumes/...` (evidence: B)."""
    return f"dbfs:{location}" if location.startswith("/Volumes/") else location
