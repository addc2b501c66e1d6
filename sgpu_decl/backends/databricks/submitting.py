"""From a run's config to what `runs/submit` of the Jobs API is told: a pure function."""

import math
import re
from dataclasses import dataclass

from sgpu_decl.backends.base import Launching
from sgpu_decl.backends.databricks.accelerating import machines_of
from sgpu_decl.config.env import Env
from sgpu_decl.config.platform import Permission
from sgpu_decl.config.run import RunConfig
from sgpu_decl.environments.known.bases import base_named
from sgpu_decl.errors import BackendError
from sgpu_decl.model.jsonable import Json

__all__ = ["DEFAULT_BASE", "LONGEST", "Staged", "payload"]

LONGEST = 7 * 24 * 3600
"""Seconds that the platform lets a run last at most."""

DEFAULT_BASE = "gpu-4"
"""The base environment where the YAML names none: the newest whose packages are known."""

ENDING = 600  # seconds beyond the run's own limit, in which the agent ends it and brings back all
_NAME = re.compile(r"[^A-Za-z0-9_-]+")
_LEVELS = {"view": "CAN_VIEW", "run": "CAN_MANAGE_RUN", "manage": "CAN_MANAGE"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Staged:
    """Where in the workspace the launch and its code lie (`None`: it has none), the id of the budget
    policy where the run names one, and the requirement lines that the platform installs."""

    folder: str
    code: str | None = None
    policy: str | None = None
    dependencies: tuple[str, ...] = ()


def payload(launching: Launching, config: RunConfig, staged: Staged) -> dict[str, Json]:
    """Return the body of the request. Its token makes it one run however often it is sent.

    Raises:
        BackendError: the platform has no such machines.
    """
    ref = launching.ref
    task: dict[str, Json] = {
        "task_key": _name(ref.address.name, 100),
        "run_if": "ALL_SUCCESS",
        "ai_runtime_task": _ai_runtime_task(launching, config, staged),
        # The node agent knows which failures are worth a restart, and does that by itself. What
        # only the platform can do is to bring new nodes.
        "max_retries": config.retry.max if "infra" in config.retry.on else 0,
    }
    asked: dict[str, Json] = {
        "run_name": str(ref),
        "idempotency_token": launching.token,
        "tasks": [task],
    }
    if config.image is None:
        task["environment_key"] = "default"
        spec = _environment(config.env, staged)
        asked["environments"] = [{"environment_key": "default", "spec": spec}]
    asked["timeout_seconds"] = _timeout(config)
    if config.permissions:
        asked["access_control_list"] = [_permission(it) for it in config.permissions]
    if staged.policy is not None:
        asked["budget_policy_id"] = staged.policy
    if config.on_finish is not None:
        told = {"on_success": config.on_finish.success, "on_failure": config.on_finish.failure}
        asked["email_notifications"] = {key: list(value) for key, value in told.items() if value}
    return asked


def _ai_runtime_task(launching: Launching, config: RunConfig, staged: Staged) -> dict[str, Json]:
    machines = machines_of(config)
    if machines is None:
        raise BackendError(
            f"Databricks has no machines for {config.gpus} GPUs of type `{config.type.name}`",
            hint="use A10, H100 or B300",
            code="no_such_machines",
        )
    compute: dict[str, Json] = {
        "accelerator_type": machines.accelerator,
        "accelerator_count": machines.gpus,
    }
    if config.pool is not None:
        compute["provisioned_capacity_id"] = config.pool
    directory, _, experiment = (config.mlflow.experiment or "").rpartition("/")
    named = config.mlflow.run_name or f"{launching.ref.address.folder}-{launching.ref.number}"
    task: dict[str, Json] = {
        "experiment": _name(experiment or launching.ref.address.name, 100),
        "mlflow_run": _name(named, 100),
        "deployments": [{"command_path": f"{staged.folder}/command.sh", "compute": compute}],
    }
    if staged.code is not None:
        task["code_source_path"] = staged.code
    if directory:
        task["mlflow_experiment_directory"] = directory
    if config.priority is not None:
        task["priority_class"] = config.priority.upper()
    if config.image is not None:
        task["unity_catalog_image_path"] = config.image
    return task


def _environment(env: Env, staged: Staged) -> dict[str, Json]:
    """A version or a base environment, never both: the platform refuses that."""
    base = base_named(env.base or DEFAULT_BASE)
    platform = base.platform if base is not None else None
    spec: dict[str, Json]
    if platform is not None and platform.base_environment is not None:
        spec = {"base_environment": platform.base_environment}
    elif platform is not None and platform.environment_version is not None:
        spec = {"environment_version": platform.environment_version}
    else:
        raise BackendError(
            f"tasks cannot choose the base environment `{env.base}`",
            hint="use `gpu-4`, or a later one",
            code="unknown_base",
        )
    if staged.dependencies:
        spec["dependencies"] = list(staged.dependencies)
    return spec


def _timeout(config: RunConfig) -> int:
    """The platform counts from the moment of submitting, so it is the outer limit alone: the agent
    stops the ranks when their own time is over."""
    if config.timeout is None:
        return LONGEST
    return min(LONGEST, math.ceil(config.timeout.seconds) + ENDING)


def _permission(given: Permission) -> dict[str, Json]:
    who: dict[str, Json] = {
        "user_name": given.user,
        "group_name": given.group,
        "service_principal_name": given.service_principal,
    }
    found: dict[str, Json] = {key: value for key, value in who.items() if value}
    found["permission_level"] = _LEVELS[given.level]
    return found


def _name(text: str, longest: int) -> str:
    return _NAME.sub("-", text).strip("-")[:longest] or "run"
