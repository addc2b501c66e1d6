"""What the MLflow run of an attempt says of it: name, parameters and tags, as on this machine.

The platform makes the MLflow run, one for each of its own attempts. Nodes need not have credentials
for anything, so whoever follows the attempt, or looks at it, writes the record (evidence: D2).
"""

import json
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from sgpu_decl.backends.databricks.api.connection import Connection
from sgpu_decl.model.jsonable import Json
from sgpu_decl.tracking.request import BATCH, KEY_LIMIT, parameters, run_tags

if TYPE_CHECKING:
    from sgpu_decl.backends.base import Launching
    from sgpu_decl.config.run import RunConfig

__all__ = ["run_record", "write_record"]

_API = "/api/2.0/mlflow/runs"


def run_record(launching: "Launching", config: "RunConfig") -> dict[str, Json]:
    """Return what is to be written: `run_name`, `params` and `tags`."""
    tags = run_tags(
        ref=launching.ref,
        token=launching.record.token,
        facts={
            "lineage": launching.record.lineage,
            "code_digest": launching.inputs.code_digest or "none",
        },
        git=launching.git,
        tags={**config.tags, **(launching.call.tags if launching.call else {})},
    )
    return {
        "run_name": (config.mlflow.run_name or str(launching.ref))[:KEY_LIMIT],
        "params": {**parameters(json.loads(launching.inputs.spec))},
        "tags": {**tags},
    }


def write_record(connection: Connection, run_id: str, record: Mapping[str, Json]) -> None:
    """Write it to an MLflow run; a second time changes nothing.

    Raises:
        BackendError: the workspace does not take it.
    """
    doing = f"describing the MLflow run {run_id}"
    for batch in _batches(record):
        connection.tell(doing, f"{_API}/log-batch", {"run_id": run_id, **batch})
    connection.tell(doing, f"{_API}/update", {"run_id": run_id, "run_name": record["run_name"]})


def _batches(record: Mapping[str, Json]) -> Iterator[dict[str, Json]]:
    params, tags = _pairs(record["params"]), _pairs(record["tags"])
    for start in range(0, max(len(params), len(tags)), BATCH):
        end = start + BATCH
        yield {"params": params[start:end], "tags": tags[start:end]}


def _pairs(named: Json) -> list[Json]:
    found = named if isinstance(named, Mapping) else {}
    return [{"key": key, "value": value} for key, value in found.items()]
