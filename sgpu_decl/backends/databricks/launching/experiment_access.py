"""Access to the MLflow experiment of a run, which has its logs and metrics, for everyone in the
`permissions` of the run. The platform gives access to the owner alone.

Both official clients use these levels (evidence: D1).
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING

from sgpu_decl.backends.databricks.api.connection import Connection
from sgpu_decl.backends.databricks.launching.experiment import Experiment
from sgpu_decl.backends.databricks.launching.submit import access_list, artifact_uri
from sgpu_decl.config.platform import Permission
from sgpu_decl.config.run import RunConfig
from sgpu_decl.diagnostics.diagnostic import Diagnostic, Severity
from sgpu_decl.errors import BackendError
from sgpu_decl.model.jsonable import Json

if TYPE_CHECKING:
    from sgpu_decl.backends.databricks.workspace import Workspace

LEVELS: Mapping[str, str] = MappingProxyType(
    {"view": "CAN_READ", "run": "CAN_EDIT", "manage": "CAN_MANAGE"}
)
"""What a level of `permissions` allows in the experiment. Levels of the platform's own are those
of jobs."""

_API = "/api/2.0/mlflow/experiments"


def shared_with(config: RunConfig) -> tuple[Permission, ...]:
    """The permissions of a run that hold for its experiment too."""
    return tuple(item for item in config.permissions if item.level in LEVELS)


def share_experiment(
    workspace: "Workspace", config: RunConfig, experiment: Experiment
) -> tuple[Diagnostic, ...]:
    """Give everyone in the `permissions` of a run access to its experiment, which is made if it is
    missing. Nobody loses access. Returns a warning if it fails: the run works without.

    Raises:
        BackendError: the folder of the experiment cannot be made.
    """
    workspace.make_experiment_folder(config)
    connection = workspace.connection
    try:
        number = _experiment(connection, experiment, config.mlflow.artifact_location)
        connection.tell(
            f"sharing the MLflow experiment `{experiment.path}`",
            f"/api/2.0/permissions/experiments/{number}",
            {"access_control_list": access_list(shared_with(config), LEVELS)},
            method="PATCH",
        )
    except BackendError as error:
        warning = Diagnostic(
            code="experiment_not_shared",
            severity=Severity.WARNING,
            summary=f"`permissions` hold for the run, and not for its logs and metrics: "
            f"{error.message}",
            hint="share the experiment in the workspace, ask its owner to, or name one of your own "
            "with `mlflow.experiment`",
        )
        return (warning,)
    return ()


def _experiment(connection: Connection, experiment: Experiment, location: str | None) -> str:
    """Its id. Artifacts cannot be moved later, so a new experiment gets the configured place."""
    doing = f"looking for the MLflow experiment `{experiment.path}`"
    answer = connection.find(doing, f"{_API}/get-by-name", experiment_name=experiment.path)
    if answer is not None:
        return str(answer["experiment"]["experiment_id"])
    body: dict[str, Json] = {"name": experiment.path}
    if location is not None:
        body["artifact_location"] = artifact_uri(location)
    return str(connection.tell(doing, f"{_API}/create", body)["experiment_id"])
