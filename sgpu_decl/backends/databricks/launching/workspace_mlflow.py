"""What this machine writes to the MLflow of a workspace: who may see an experiment, and what a run
says of its attempt.

The platform makes the MLflow run, one for each of its own attempts. Nodes need not have credentials
for anything, so whoever follows the attempt, or looks at it, writes name, parameters and tags, as
they are on this machine (evidence: D2).
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING

from sgpu_decl.backends.databricks.api.connection import Connection
from sgpu_decl.backends.databricks.launching.experiment import Experiment
from sgpu_decl.backends.databricks.launching.submit import access_list, artifact_uri
from sgpu_decl.config.run import RunConfig
from sgpu_decl.config.run_blocks import Permission
from sgpu_decl.diagnostics.diagnostic import Diagnostic, Severity
from sgpu_decl.errors import BackendError
from sgpu_decl.model.jsonable import Json
from sgpu_decl.tracking.run_description import KEY_LIMIT, parameters, run_tags
from sgpu_decl.tracking.tracking_request import BATCH

if TYPE_CHECKING:
    from sgpu_decl.backends.databricks.workspace import Workspace
    from sgpu_decl.backends.launch_request import LaunchRequest

LEVELS: Mapping[str, str] = MappingProxyType(
    {"view": "CAN_READ", "run": "CAN_EDIT", "manage": "CAN_MANAGE"}
)
"""What a level of `permissions` allows in the experiment. Levels of the platform's own are those
of jobs."""

_API = "/api/2.0/mlflow/experiments"
_RUNS_API = "/api/2.0/mlflow/runs"


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


def mlflow_metadata(request: "LaunchRequest") -> dict[str, Json]:
    """Return what is to be written: `run_name`, and lists of `params` and `tags`."""
    tags = run_tags(
        ref=request.ref,
        token=request.record.token,
        facts=request.facts,
        git=request.git,
        tags=request.tags,
    )
    return {
        "run_name": (request.config.mlflow.run_name or str(request.ref))[:KEY_LIMIT],
        "params": _pairs(parameters(request.inputs.spec.fields, request.ref.address.key)),
        "tags": _pairs(tags),
    }


def write_metadata(connection: Connection, run_id: str, metadata: Mapping[str, Json]) -> None:
    """Write it to an MLflow run; a second time changes nothing.

    Raises:
        BackendError: the workspace does not take it.
    """
    doing = f"describing the MLflow run {run_id}"
    params, tags = metadata["params"], metadata["tags"]
    assert isinstance(params, list) and isinstance(tags, list)  # noqa: S101, PT018  as made above
    for start in range(0, max(len(params), len(tags)), BATCH):
        batch: dict[str, Json] = {
            "run_id": run_id,
            "params": params[start : start + BATCH],
            "tags": tags[start : start + BATCH],
        }
        connection.tell(doing, f"{_RUNS_API}/log-batch", batch)
    connection.tell(
        doing, f"{_RUNS_API}/update", {"run_id": run_id, "run_name": metadata["run_name"]}
    )


def _pairs(named: Mapping[str, str]) -> list[Json]:
    return [{"key": key, "value": value} for key, value in named.items()]
