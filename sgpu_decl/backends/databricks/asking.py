"""What only the workspace itself can say of a run before it is submitted."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sgpu_decl.backends.databricks.accelerating import machines_of
from sgpu_decl.backends.databricks.complaints import Rejected, Unknown
from sgpu_decl.backends.databricks.offers import Offers, keys_of, offers_of, policy_of
from sgpu_decl.backends.databricks.remembering import Memory
from sgpu_decl.backends.databricks.submitting import (
    Staged,
    environment_of,
    retries_of,
    task_of,
    timeout_of,
)
from sgpu_decl.backends.databricks.workspace import Workspace
from sgpu_decl.config.run import RunConfig
from sgpu_decl.diagnostics.diagnostic import Diagnostic
from sgpu_decl.diagnostics.place import Place
from sgpu_decl.errors import BackendError

__all__ = ["Asked", "ask_workspace"]

_FIELDS = {
    "accelerator_type": "type",
    "accelerator_count": "gpus",
    "provisioned_capacity_id": "pool",
    "priority_class": "priority",
    "experiment": "mlflow.experiment",
    "mlflow_experiment_directory": "mlflow.experiment",
    "mlflow_run": "mlflow.run_name",
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


def ask_workspace(workspace: Workspace) -> "Asked":
    """Ask what the workspace offers.

    Raises:
        SgpuError: it cannot be asked.
    """
    return Asked(workspace, offers_of(workspace.connection))


@dataclass(frozen=True, slots=True)
class Asked:
    """What a workspace answered."""

    workspace: Workspace
    offers: Offers

    def pools_of(self, config: RunConfig) -> tuple[str, ...]:
        """The reserved pools that could have a run's nodes."""
        machines = machines_of(config)
        return self.offers.pools_for(machines.accelerator) if machines is not None else ()

    def accelerator(self, config: RunConfig, places: Mapping[str, Place]) -> Sequence[Diagnostic]:
        """Whether it has the machines."""
        machines, offered = machines_of(config), self.offers.accelerators
        if machines is None or offered is None or machines.accelerator in offered:
            return ()
        listed = ", ".join(f"`{it}`" for it in offered) or "none at all"
        return (
            Diagnostic(
                code="accelerator_not_offered",
                summary=f"`{self.workspace.connection.host}` does not offer "
                f"`{machines.accelerator}`, which {config.gpus} of `{config.type.name}` needs",
                place=places.get("type"),
                hint=f"it offers {listed}",
            ),
        )

    def named(self, config: RunConfig, places: Mapping[str, Place]) -> Iterator[Diagnostic]:
        """Whether it has the budget policy and the secrets that a run names, as far as it says."""
        connection = self.workspace.connection
        if config.budget is not None:
            try:
                policy_of(connection, config.budget)
            except BackendError as error:
                if error.code == "unknown_policy":
                    yield Diagnostic(
                        code=error.code, summary=error.message, place=places.get("budget"),
                        hint=error.hint,
                    )  # fmt: skip
        for name, reference in config.env.secrets.items():
            scope, _, key = reference.partition(":")[2].partition("/")
            try:
                keys = keys_of(connection, scope)
            except BackendError:
                continue  # whoever may not list them may be allowed to use them
            if keys is not None and key in keys:
                continue
            lacking = f"secret scope `{scope}`" if keys is None else f"secret `{scope}/{key}`"
            made = f"`databricks secrets create-scope {scope}`, then " if keys is None else ""
            yield Diagnostic(
                code="secret_missing",
                summary=f"`{connection.host}` has no {lacking}, which `{name}` refers to",
                place=places.get(f"env.secrets.{name}"),
                hint=f"make it with {made}`databricks secrets put-secret {scope} {key}`",
            )

    def validated(self, config: RunConfig, places: Mapping[str, Place]) -> Sequence[Diagnostic]:
        """What its own validation says, where it has one: it is asked, and never required."""
        folder = "/Workspace/Shared/launch"
        task = task_of(config, Staged(folder=folder), run_name=config.name, pool=config.pool)
        body: dict[str, Any] = {
            "task": task,
            "run_options": {
                "max_retries": retries_of(config),
                "timeout_minutes": max(1, timeout_of(config) // 60),
                "env_variables": dict(config.env.variables),
                "secrets": {
                    name: reference.partition(":")[2]
                    for name, reference in config.env.secrets.items()
                },
            },
        }
        if config.image is None:
            body["environment"] = environment_of(config.env, config.env.dependencies or ())
        connection = self.workspace.connection
        memory = Memory(connection)
        if memory.answer(body) == []:
            return ()
        path = "/api/2.0/ai-training/config:validate"
        try:
            answer = connection.tell("asking whether the run is valid", path, body)
        except (Unknown, Rejected):
            memory.remember(body, [])  # it has none, or none that knows what we say
            return ()
        except BackendError as error:
            if error.code in ("unauthenticated", "host_unreachable"):
                raise
            return ()
        errors = answer.get("errors") or []
        memory.remember(body, errors)
        return tuple(self._told(errors, places))

    def _told(
        self, errors: Sequence[Mapping[str, Any]], places: Mapping[str, Place]
    ) -> Iterator[Diagnostic]:
        for error in errors:
            last = str(error.get("path") or "").rpartition(".")[2].partition("[")[0]
            field = _FIELDS.get(last, "")
            place = places.get(field) or places.get(field.partition(".")[0])
            yield Diagnostic(
                code="workspace_refuses",
                summary=f"the workspace would refuse it: {error.get('message')}"
                + (f" (`{error.get('path')}`)" if error.get("path") else ""),
                place=place,
                hint=f"change `{field}`" if field else None,
            )
