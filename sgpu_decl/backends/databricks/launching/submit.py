"""From a run's config to what `runs/submit` of the Jobs API is told: a pure function."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from types import MappingProxyType

from sgpu_decl.backends.databricks.bases import base_named
from sgpu_decl.backends.databricks.launching.experiment import experiment_of, platform_name
from sgpu_decl.backends.databricks.planning.machines import machines_of, refusal_of
from sgpu_decl.config.env import Env
from sgpu_decl.config.platform import Permission
from sgpu_decl.config.run import RunConfig
from sgpu_decl.errors import BackendError
from sgpu_decl.model.jsonable import Json
from sgpu_decl.model.launch import LaunchRecord

__all__ = [
    "DEFAULT_BASE",
    "ENVIRONMENT",
    "LONGEST",
    "YAML_FIELDS",
    "StagedLaunch",
    "artifact_uri",
    "base_of",
    "ended_early",
    "environment_of",
    "has_managed_base",
    "lowest_version",
    "payload",
    "principal",
    "retries_of",
    "task_of",
    "timeout_of",
]

LONGEST = 7 * 24 * 3600
"""Seconds that the platform lets a run last at most."""

DEFAULT_BASE = "gpu-4"
"""The base environment where the YAML names none: the newest whose packages are known."""

ENVIRONMENT = "default"
"""The key of the one environment of a run or a job. Every `ai_runtime_task` refers to one, a task
with an image too: the platform refuses it otherwise."""

QUEUE = 24 * 3600
"""Seconds that a run may wait for GPUs where `startup_timeout` does not say."""

ENDING = 600  # seconds beyond the run's own limit, in which the agent ends it and brings back all
_LOWEST = MappingProxyType({"GPU_8xB300": 6})  # environment versions; the others are in all
_LEVELS = {"view": "CAN_VIEW", "run": "CAN_MANAGE_RUN", "manage": "CAN_MANAGE"}


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
    """Where in the workspace the launch and its code lie (`None`: it has none), and experiments
    that name no folder of their own; the id of the budget policy where the run names one, and the
    requirement lines that the platform installs."""

    folder: str
    experiments: str
    code: str | None = None
    policy: str | None = None
    dependencies: tuple[str, ...] = ()


def payload(launch: LaunchRecord, config: RunConfig, staged: StagedLaunch) -> dict[str, Json]:
    """Return the body of the request. Its token makes it one run however often it is sent.

    Raises:
        BackendError: the platform has no such machines.
    """
    ref = launch.ref
    task: dict[str, Json] = {
        "task_key": platform_name(ref.address.name),
        "run_if": "ALL_SUCCESS",
        "environment_key": ENVIRONMENT,
        "ai_runtime_task": task_of(
            config,
            staged,
            run_name=f"{ref.address.folder}-{ref.number}",
            placement=launch.inputs.placement,
        ),
        "max_retries": retries_of(config),
    }
    spec = environment_of(Env(base=base_of(config)), staged.dependencies)
    asked: dict[str, Json] = {
        "run_name": str(ref),
        "idempotency_token": launch.token,
        "timeout_seconds": timeout_of(config, attempts=1 + retries_of(config)),
        "environments": [{"environment_key": ENVIRONMENT, "spec": spec}],
        "tasks": [task],
    }
    if config.permissions:
        asked["access_control_list"] = [
            {**principal(permission), "permission_level": _LEVELS[permission.level]}
            for permission in config.permissions
        ]
    if staged.policy is not None:
        asked["budget_policy_id"] = staged.policy
    if config.on_finish is not None:
        told = {"on_success": config.on_finish.success, "on_failure": config.on_finish.failure}
        asked["email_notifications"] = {key: list(value) for key, value in told.items() if value}
    return asked


def task_of(
    config: RunConfig, staged: StagedLaunch, *, run_name: str, placement: str | None
) -> dict[str, Json]:
    """Return the `ai_runtime_task`.

    Args:
        run_name: what its MLflow run is called where the config does not say.
        placement: that of the launch, the id of the pool that GPUs come from.

    Raises:
        BackendError: the platform has no such machines.
    """
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
    }
    if placement is not None:
        compute["provisioned_capacity_id"] = placement
    experiment = experiment_of(config, staged.experiments)
    task: dict[str, Json] = {
        "experiment": experiment.name,
        "mlflow_experiment_directory": experiment.folder,
        "mlflow_run": platform_name(config.mlflow.run_name or run_name),
        "deployments": [{"command_path": f"{staged.folder}/command.sh", "compute": compute}],
    }
    if config.mlflow.artifact_location is not None:
        task["mlflow_artifact_location"] = artifact_uri(config.mlflow.artifact_location)
    if staged.code is not None:
        task["code_source_path"] = staged.code
    if config.priority is not None:
        task["priority_class"] = config.priority.upper()
    if config.image is not None:
        task["unity_catalog_image_path"] = config.image
    return task


def retries_of(config: RunConfig) -> int:
    """How often the platform may bring new nodes. The node agent knows which failures are worth
    that; ranks on nodes that are there yet it starts again by itself."""
    return config.retry.max if "infra" in config.retry.on else 0


def ended_early(config: RunConfig) -> bool:
    """Whether a run is cancelled once its own code has failed, before the platform brings it nodes
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
    """Whether the run asks for a base of the family `ai`, an environment with torch."""
    base = base_named(base_of(config))
    return base is not None and base.base_environment is not None


def environment_of(env: Env, dependencies: Sequence[str]) -> dict[str, Json]:
    """The `spec` of the environment: a version or a base environment, never both, which the
    platform refuses.

    Raises:
        BackendError: tasks cannot choose that base.
    """
    base = base_named(env.base or DEFAULT_BASE)
    spec: dict[str, Json]
    if base is not None and base.base_environment is not None:
        spec = {"base_environment": base.base_environment}
    elif base is not None and base.environment_version is not None:
        spec = {"environment_version": base.environment_version}
    else:
        raise BackendError(
            f"tasks cannot choose the base environment `{env.base}`",
            hint="use `gpu-4`, or a later one",
            code="unknown_base",
            field="env.base",
        )
    if dependencies:
        spec["dependencies"] = list(dependencies)
    return spec


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


def principal(given: Permission) -> dict[str, Json]:
    """Who a permission is for, in an entry of an access list."""
    who: dict[str, Json] = {
        "user_name": given.user,
        "group_name": given.group,
        "service_principal_name": given.service_principal,
    }
    return {key: value for key, value in who.items() if value}


def artifact_uri(location: str) -> str:
    """As the platform's clients write it: a volume is `dbfs:/Volumes/...` (evidence: B)."""
    return f"dbfs:{location}" if location.startswith("/Volumes/") else location
