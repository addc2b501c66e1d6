"""What the MLflow run of an attempt says of it: name, parameters and tags, as on this machine.

The platform makes the MLflow run, one for each of its own attempts. Nodes need not have credentials
for anything, so whoever follows the attempt, or looks at it, writes this (evidence: D2).
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from sgpu_decl.backends.databricks.api.connection import Connection
from sgpu_decl.model.jsonable import Json
from sgpu_decl.tracking.run_description import KEY_LIMIT, parameters, run_tags
from sgpu_decl.tracking.tracking_request import BATCH

if TYPE_CHECKING:
    from sgpu_decl.backends.launch_request import LaunchRequest

_API = "/api/2.0/mlflow/runs"


def mlflow_metadata(launching: "LaunchRequest") -> dict[str, Json]:
    """Return what is to be written: `run_name`, and lists of `params` and `tags`."""
    tags = run_tags(
        ref=launching.ref,
        token=launching.record.token,
        facts=launching.facts,
        git=launching.git,
        tags=launching.tags,
    )
    return {
        "run_name": (launching.config.mlflow.run_name or str(launching.ref))[:KEY_LIMIT],
        "params": _pairs(parameters(launching.inputs.spec.fields, launching.ref.address.key)),
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
        connection.tell(doing, f"{_API}/log-batch", batch)
    connection.tell(doing, f"{_API}/update", {"run_id": run_id, "run_name": metadata["run_name"]})


def _pairs(named: Mapping[str, str]) -> list[Json]:
    return [{"key": key, "value": value} for key, value in named.items()]
