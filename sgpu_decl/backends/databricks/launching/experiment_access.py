"""Who may see the MLflow experiment of a run: those whom `permissions` let see the run. Logs and
metrics lie there, and the platform gives the experiment of a run to nobody but its owner.

Both official clients do it with these levels (evidence: D1).
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING

from sgpu_decl.backends.databricks.api.connection import Connection
from sgpu_decl.backends.databricks.launching.experiment import Experiment
from sgpu_decl.backends.databricks.launching.submit import artifact_uri, principal
from sgpu_decl.backends.remote.files import RemoteMissing
from sgpu_decl.diagnostics.diagnostic import Diagnostic, Severity
from sgpu_decl.errors import BackendError
from sgpu_decl.model.jsonable import Json

if TYPE_CHECKING:
    from sgpu_decl.backends.databricks.workspace import Workspace
    from sgpu_decl.config.run import RunConfig

__all__ = ["LEVELS", "share_experiment"]

LEVELS: Mapping[str, str] = MappingProxyType(
    {"view": "CAN_READ", "run": "CAN_EDIT", "manage": "CAN_MANAGE"}
)
"""What a level of `permissions` allows in the experiment."""

_API = "/api/2.0/mlflow/experiments"


def share_experiment(
    workspace: "Workspace", config: "RunConfig", experiment: Experiment
) -> tuple[Diagnostic, ...]:
    """Let those whom a run names see its experiment, which is made where it is missing; nobody
    loses what they may. Return a warning where that cannot be: the run itself needs none of it.

    Raises:
        BackendError: the folder of the experiment cannot be made.
    """
    workspace.make_experiment_folder(config)
    connection = workspace.connection
    entries: list[Json] = [
        {**principal(permission), "permission_level": LEVELS[permission.level]}
        for permission in config.permissions
    ]

    try:
        number = _experiment(connection, experiment, config.mlflow.artifact_location)
        with connection.explained(f"sharing the MLflow experiment `{experiment.path}`"):
            connection.client.api_client.do(
                "PATCH",
                f"/api/2.0/permissions/experiments/{number}",
                body={"access_control_list": entries},
            )
    except BackendError as error:
        found = Diagnostic(
            code="experiment_not_shared",
            severity=Severity.WARNING,
            summary=f"those whom `permissions` name see the run, and not its logs and metrics: "
            f"{error.message}",
            hint="share the experiment in the workspace, ask its owner to, or name one of your own "
            "with `mlflow.experiment`",
        )
        return (found,)
    return ()


def _experiment(connection: Connection, experiment: Experiment, location: str | None) -> str:
    """Its id. Its artifacts cannot be moved later, so their place is said as the platform would."""
    doing = f"looking for the MLflow experiment `{experiment.path}`"
    query = {"experiment_name": experiment.path}
    try:
        answer = connection.ask(doing, f"{_API}/get-by-name", **query)
        return str(answer["experiment"]["experiment_id"])
    except RemoteMissing:
        body: dict[str, Json] = {"name": experiment.path}
        if location is not None:
            body["artifact_location"] = artifact_uri(location)
        made = connection.tell(doing, f"{_API}/create", body)
        return str(made["experiment_id"])
