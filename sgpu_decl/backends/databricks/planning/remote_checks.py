"""What only the workspace itself can say of a run before it is submitted."""

from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sgpu_decl.backends.databricks.api.sdk_errors import Rejected, without_refusals
from sgpu_decl.backends.databricks.launching.experiment import experiment_of
from sgpu_decl.backends.databricks.launching.submit import (
    YAML_FIELDS,
    StagedLaunch,
    environment_of,
    principal,
    retries_of,
    task_of,
    timeout_of,
)
from sgpu_decl.backends.databricks.launching.workspace_mlflow import LEVELS, shared_with
from sgpu_decl.backends.databricks.planning.catalog import (
    FOLDER,
    GROUPS,
    Catalog,
    has_principal,
    keys_of,
    kind_of,
    policy_of,
)
from sgpu_decl.backends.databricks.planning.machines import is_unlisted, machines_of
from sgpu_decl.backends.databricks.planning.pools import PoolChoice
from sgpu_decl.backends.databricks.planning.staging_access import (
    check_artifact_volume,
    check_staging,
)
from sgpu_decl.backends.databricks.workspace import Workspace
from sgpu_decl.backends.secret_resolution import secret_field, secret_name
from sgpu_decl.config.run import RunConfig
from sgpu_decl.diagnostics.diagnostic import Diagnostic, Severity
from sgpu_decl.diagnostics.place import Place
from sgpu_decl.errors import BackendError
from sgpu_decl.model.jsonable import canonical
from sgpu_decl.places.file_place import PlaceMissing

VALIDATION = "/api/2.0/ai-training/config:validate"


def validation_body(staged: StagedLaunch) -> dict[str, Any]:
    """What `config:validate` is asked about a run. Raises BackendError as `task_of` does."""
    config = staged.config
    return {
        "task": task_of(staged, run_name=config.name),
        "environment": environment_of(config),
        "run_options": {
            "max_retries": retries_of(config),
            "timeout_minutes": timeout_of(config, attempts=1 + retries_of(config)) // 60,
            "env_variables": dict(config.env.variables),
            "secrets": {
                name: reference.partition(":")[2] for name, reference in config.env.secrets.items()
            },
        },
    }


@dataclass(frozen=True, slots=True)
class RemoteChecks:
    """What a workspace says of one run.

    Args:
        catalog: what it offers.
        places: where the fields of the config are.
        refusals: what `config:validate` said of what it was asked already.
    """

    workspace: Workspace
    catalog: Catalog
    config: RunConfig
    places: Mapping[str, Place]
    refusals: MutableMapping[str, Sequence[Mapping[str, Any]]] = field(default_factory=dict)

    def findings(self, choice: PoolChoice | None) -> Iterator[Diagnostic]:
        """What stands in the way of the run, without `validated`.

        Args:
            choice: where its GPUs come from.

        Raises:
            BackendError: the workspace cannot be asked.
        """
        workspace = self.workspace
        yield from self._accelerator()
        if choice is not None:
            yield from choice.check(workspace.connection.host, self.catalog.pools, self.places)
        yield from self._budget()
        yield from self._secrets()
        yield from self._groups()
        yield from self._experiment_folder()
        yield from self._experiment_access()
        yield from check_staging(workspace.connection, workspace.staging, self.places)
        location = self.config.mlflow.artifact_location
        yield from check_artifact_volume(workspace.connection, location, self.places)

    def _accelerator(self) -> Iterator[Diagnostic]:
        config, offered = self.config, self.catalog.accelerators
        machines = machines_of(config)
        if machines is None or offered is None or machines.accelerator in offered:
            return
        if is_unlisted(config.type) and config.type.node is None:
            return  # the rules of configs refuse it
        listed = ", ".join(f"`{item}`" for item in offered) or "none at all"
        yield Diagnostic(
            code="accelerator_not_offered",
            summary=f"`{self.workspace.connection.host}` does not offer "
            f"`{machines.accelerator}`, which {config.gpus} of `{config.type.name}` needs",
            place=self.places.get("type"),
            hint=f"it offers {listed}",
        )

    def _budget(self) -> Iterator[Diagnostic]:
        if self.config.budget is None:
            return
        try:
            policy_of(self.workspace.connection, self.config.budget)
        except BackendError as error:
            if error.code == "unknown_policy":
                yield Diagnostic(
                    code=error.code, summary=error.message, place=self.places.get("budget"),
                    hint=error.hint,
                )  # fmt: skip

    def _secrets(self) -> Iterator[Diagnostic]:
        connection = self.workspace.connection
        for name, reference in self.config.secrets.items():
            scheme, _, secret = reference.partition(":")
            if scheme != "databricks":
                continue  # a finding of `databricks_config_rules`
            scope, _, key = secret.partition("/")
            with without_refusals():
                keys = keys_of(connection, scope)
                if keys is not None and key in keys:
                    continue
                missing = f"secret scope `{scope}`" if keys is None else f"secret `{secret}`"
                before = f"`databricks secrets create-scope {scope}`, then " if keys is None else ""
                yield Diagnostic(
                    code="secret_missing",
                    summary=f"`{connection.host}` has no {missing}, which `{secret_name(name)}` "
                    "refers to",
                    place=self.places.get(secret_field(name)),
                    hint=f"make it with {before}`databricks secrets put-secret {scope} {key}`",
                )

    def _groups(self) -> Iterator[Diagnostic]:
        """A warning: a user may not see all groups."""
        connection = self.workspace.connection
        for number, permission in enumerate(self.config.permissions):
            group = permission.group
            if group is None or has_principal(connection, GROUPS, group) is not False:
                continue
            yield Diagnostic(
                code="unknown_group",
                severity=Severity.WARNING,
                summary=f"`{connection.host}` shows no group `{group}`, and `apply` would fail",
                place=self._first_place(
                    f"permissions.{number}.group", f"permissions.{number}", "permissions"
                ),
                hint="correct its name, or ask an admin of the workspace to add it",
            )

    def _experiment_folder(self) -> Iterator[Diagnostic]:
        experiment = experiment_of(self.config, self.workspace.experiments)
        connection, folder = self.workspace.connection, experiment.folder
        if not experiment.names_folder:
            return
        with without_refusals():
            kind = kind_of(connection, folder)
            place = self.places.get("mlflow.experiment")
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
                    summary=f"`{folder}` is no folder in `{connection.host}` but a {kind.lower()}, "
                    "and an experiment lies in a folder",
                    place=place,
                    hint="name another path with `mlflow.experiment`",
                )

    def _experiment_access(self) -> Iterator[Diagnostic]:
        permissions = shared_with(self.config)
        if not permissions:
            return
        path = experiment_of(self.config, self.workspace.experiments).path
        allowed = [
            f"`{next(iter(principal(permission).values()))}` {LEVELS[permission.level]}"
            for permission in permissions
        ]
        yield Diagnostic(
            code="experiment_shared",
            severity=Severity.INFO,
            summary=f"`permissions` hold for the MLflow experiment `{path}` too, with the logs and "
            f"metrics of all its runs: {', '.join(allowed)}",
            place=self._first_place("permissions", "permissions.0"),
            hint="name another experiment with `mlflow.experiment` for runs that others may not "
            "see",
        )

    def validated(self, placement: str | None) -> Iterator[Diagnostic]:
        """What `config:validate` says, if the workspace has it. It is asked about the request that
        `apply` submits. Only the last folders of the command's path are missing: they name the
        attempt, and the answer holds for all attempts, and for all runs that differ in their names
        alone.

        Args:
            placement: that of the launch.
        """
        workspace = self.workspace
        answers = workspace.connection.answers
        question = self._request(placement, "run")
        if answers.cached(question) == []:
            return
        key = canonical([workspace.connection.host, question])
        if key in self.refusals:
            for error in self.refusals[key]:
                yield from self._refused(error)
            return
        body = self._request(placement, self.config.name)
        errors: Sequence[Mapping[str, Any]] = ()
        with without_refusals():
            try:
                doing = "asking whether the run is valid"
                errors = workspace.connection.tell(doing, VALIDATION, body).get("errors") or ()
            except PlaceMissing:  # the workspace does not have it
                errors = ()
            except Rejected as refusal:  # it may not know a field of ours
                errors = ({"message": refusal.message},)
            if not errors:
                answers.remember(question, [])
        self.refusals[key] = errors
        for error in errors:
            yield from self._refused(error)

    def _request(self, placement: str | None, name: str | None) -> dict[str, Any]:
        """What is asked about the run, if that were its name."""
        layout = self.workspace.area.layout
        staged = StagedLaunch(
            config=self.config.model_copy(update={"name": name}),
            folder=layout.commands(f"{layout.runs}/{name}"),
            experiments=self.workspace.experiments,
            placement=placement,
        )
        return validation_body(staged)

    def _refused(self, error: Mapping[str, Any]) -> Iterator[Diagnostic]:
        """An answer that names a field of the YAML is an error. Any other may be about the question
        itself, so it does not refuse the run."""
        path, message = error.get("path"), error.get("message")
        field = YAML_FIELDS.get(str(path or "").rpartition(".")[2].partition("[")[0], "")
        yield Diagnostic(
            code="workspace_refuses",
            severity=Severity.ERROR if field else Severity.WARNING,
            summary=f"the workspace {'would' if field else 'may'} refuse it: {message}"
            + (f" (`{path}`)" if path else ""),
            place=self._first_place(field, field.partition(".")[0]),
            hint=f"change `{field}`" if field else None,
        )

    def _first_place(self, *paths: str) -> Place | None:
        return next((self.places[path] for path in paths if path in self.places), None)
