"""What only the workspace itself can say of a run before it is submitted."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sgpu_decl.backends.databricks.api.answer_cache import AnswerCache
from sgpu_decl.backends.databricks.api.sdk_errors import Rejected
from sgpu_decl.backends.databricks.launching.experiment import experiment_of
from sgpu_decl.backends.databricks.launching.experiment_access import LEVELS
from sgpu_decl.backends.databricks.launching.submit import (
    StagedLaunch,
    base_of,
    environment_of,
    principal,
    retries_of,
    task_of,
    timeout_of,
)
from sgpu_decl.backends.databricks.planning.catalog import (
    FOLDER,
    Catalog,
    catalog_of,
    has_group,
    keys_of,
    kind_of,
    policy_of,
)
from sgpu_decl.backends.databricks.planning.machines import machines_of
from sgpu_decl.backends.databricks.workspace import Workspace
from sgpu_decl.backends.remote.files import RemoteMissing
from sgpu_decl.config.env import Env
from sgpu_decl.config.run import RunConfig
from sgpu_decl.diagnostics.diagnostic import Diagnostic, Severity
from sgpu_decl.diagnostics.place import Place
from sgpu_decl.errors import BackendError
from sgpu_decl.model.pool import PoolChoice, PoolKind

__all__ = ["VALIDATION", "RemoteChecks", "open_remote_checks", "validation_body"]

_FIELDS = {
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


VALIDATION = "/api/2.0/ai-training/config:validate"


def validation_body(config: RunConfig, staged: StagedLaunch, pool: str | None) -> dict[str, Any]:
    """What `config:validate` is asked about a run. Raises BackendError as `task_of` does.

    Args:
        pool: the id of the pool that GPUs come from, if from one.
    """
    return {
        "task": task_of(config, staged, run_name=config.name, pool=pool),
        "environment": environment_of(Env(base=base_of(config)), config.env.dependencies or ()),
        "run_options": {
            "max_retries": retries_of(config),
            "timeout_minutes": timeout_of(config, attempts=1 + retries_of(config)) // 60,
            "env_variables": dict(config.env.variables),
            "secrets": {
                name: reference.partition(":")[2] for name, reference in config.env.secrets.items()
            },
        },
    }


def open_remote_checks(workspace: Workspace) -> "RemoteChecks":
    """Ask what the workspace offers.

    Raises:
        SgpuError: it cannot be asked.
    """
    return RemoteChecks(workspace, catalog_of(workspace.connection))


@dataclass(frozen=True, slots=True)
class RemoteChecks:
    """What a workspace answered."""

    workspace: Workspace
    catalog: Catalog

    def pools_of(self, config: RunConfig) -> tuple[str, ...]:
        """The reserved pools that could have a run's nodes."""
        machines = machines_of(config)
        return self.catalog.pools_for(machines.accelerator) if machines is not None else ()

    def accelerator(self, config: RunConfig, places: Mapping[str, Place]) -> Sequence[Diagnostic]:
        """Whether it has the machines."""
        machines, offered = machines_of(config), self.catalog.accelerators
        if machines is None or offered is None or machines.accelerator in offered:
            return ()
        listed = ", ".join(f"`{item}`" for item in offered) or "none at all"
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
            scheme, _, named = reference.partition(":")
            if scheme != "databricks":
                continue  # said by the rules
            scope, _, key = named.partition("/")
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

    def pool(self, choice: PoolChoice | None, places: Mapping[str, Place]) -> Iterator[Diagnostic]:
        """Whether it has the pool that a run names."""
        pools = self.catalog.pools
        if choice is None or choice.kind is not PoolKind.NAMED or pools is None:
            return
        known = [item.id for item in pools]
        if choice.pool not in known:
            listed = ", ".join(f"`{item}`" for item in known)
            yield Diagnostic(
                code="unknown_pool",
                summary=f"`{self.workspace.connection.host}` has no pool `{choice.pool}`",
                place=places.get("pool"),
                hint=f"it has {listed}" if listed else "it has none: use `pool: on_demand`",
            )

    def groups(self, config: RunConfig, places: Mapping[str, Place]) -> Iterator[Diagnostic]:
        """Whether it has the groups that permissions name, as far as it says: a warning, since
        whoever looks need not see all of them."""
        connection = self.workspace.connection
        for number, permission in enumerate(config.permissions):
            group = permission.group
            if group is None or has_group(connection, group) is not False:
                continue
            yield Diagnostic(
                code="unknown_group",
                severity=Severity.WARNING,
                summary=f"`{connection.host}` shows no group `{group}`, and `apply` would fail",
                place=places.get(f"permissions.{number}.group")
                or places.get(f"permissions.{number}")
                or places.get("permissions"),
                hint="correct its name, or ask who manages the workspace to add it",
            )

    def experiment(self, config: RunConfig, places: Mapping[str, Place]) -> Iterator[Diagnostic]:
        """Whether the folder of its experiment is there; `apply` makes one that is not."""
        experiment = experiment_of(config, self.workspace.experiments)
        if not experiment.named:
            return
        connection, folder = self.workspace.connection, experiment.folder
        try:
            kind = kind_of(connection, folder)
        except BackendError as error:
            if error.code in ("unauthenticated", "host_unreachable"):
                raise
            return  # whoever may not look may be allowed to use it
        place = places.get("mlflow.experiment")
        if kind is None:
            yield Diagnostic(
                code="experiment_folder_missing",
                severity=Severity.INFO,
                summary=f"`{connection.host}` has no folder `{folder}` for the experiment yet: "
                "`apply` makes it",
                place=place,
                hint="correct `mlflow.experiment` if another folder is meant",
            )
        elif kind != FOLDER:
            yield Diagnostic(
                code="experiment_folder_taken",
                summary=f"`{folder}` is no folder in `{connection.host}` but a {kind.lower()}, and "
                "an experiment lies in a folder",
                place=place,
                hint="name another path with `mlflow.experiment`",
            )

    def sharing(self, config: RunConfig, places: Mapping[str, Place]) -> Iterator[Diagnostic]:
        """What `permissions` mean for the experiment."""
        if not config.permissions:
            return
        path = experiment_of(config, self.workspace.experiments).path
        allowed = [
            f"`{next(iter(principal(permission).values()))}` {LEVELS[permission.level]}"
            for permission in config.permissions
        ]
        yield Diagnostic(
            code="experiment_shared",
            severity=Severity.INFO,
            summary=f"`permissions` hold for the MLflow experiment `{path}` too, with the logs and "
            f"metrics of all its runs: {', '.join(allowed)}",
            place=places.get("permissions") or places.get("permissions.0"),
            hint="name another experiment with `mlflow.experiment` for runs that others may not "
            "see",
        )

    def validated(
        self, config: RunConfig, places: Mapping[str, Place], *, pool: str | None
    ) -> Sequence[Diagnostic]:
        """What its own validation says, where it has one: it is asked, and never required. It is
        asked what `apply` submits, as far as that is known. Of the command's path the last folders
        are not: they name the attempt, and the answer counts for all attempts.

        Args:
            pool: the id of the pool that GPUs come from, if from one.
        """
        runs = f"{self.workspace.layout.root}/runs"
        folder = self.workspace.layout.commands(f"{runs}/{config.name}")
        staged = StagedLaunch(folder=folder, experiments=self.workspace.experiments)
        body = validation_body(config, staged, pool)
        connection = self.workspace.connection
        cache = AnswerCache(connection)
        if cache.answer(body) == []:
            return ()
        try:
            answer = connection.tell("asking whether the run is valid", VALIDATION, body)
        except RemoteMissing:
            cache.remember(body, [])  # it has none
            return ()
        except Rejected as error:  # it may not know what we say
            return tuple(self._told([{"message": error.message}], places))
        except BackendError as error:
            if error.code in ("unauthenticated", "host_unreachable"):
                raise
            return ()
        errors = answer.get("errors") or []
        cache.remember(body, errors)
        return tuple(self._told(errors, places))

    def _told(
        self, errors: Sequence[Mapping[str, Any]], places: Mapping[str, Place]
    ) -> Iterator[Diagnostic]:
        """An answer that names a field of the YAML is an error. What is wrong with any other may be
        the question, so a run is not refused for it."""
        for error in errors:
            last = str(error.get("path") or "").rpartition(".")[2].partition("[")[0]
            field = _FIELDS.get(last, "")
            place = places.get(field) or places.get(field.partition(".")[0])
            yield Diagnostic(
                code="workspace_refuses",
                severity=Severity.ERROR if field else Severity.WARNING,
                summary=f"the workspace {'would' if field else 'may'} refuse it: "
                f"{error.get('message')}"
                + (f" (`{error.get('path')}`)" if error.get("path") else ""),
                place=place,
                hint=f"change `{field}`" if field else None,
            )
