"""What the caller tracks by MLflow itself: its active run becomes the parent of the call's run."""

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field

__all__ = ["Parent", "parent"]

_PARENT = "mlflow.parentRunId"  # mlflow.utils.mlflow_tags.MLFLOW_PARENT_RUN_ID


@dataclass(frozen=True, slots=True, kw_only=True)
class Parent:
    """`experiment` is the name of the one that the caller works in, None where it chose none;
    `nested` says that a run of it is active, whose id is in `tags`."""

    experiment: str | None = None
    nested: bool = False
    tags: Mapping[str, str] = field(default_factory=dict)


def parent() -> Parent:
    """Look at the caller's MLflow, which is not imported for it. Where it stores is told by the
    environment, as `mlflow.set_tracking_uri` leaves it."""
    mlflow = sys.modules.get("mlflow")
    active = mlflow.active_run() if mlflow is not None else None
    if mlflow is not None and active is not None:
        experiment = mlflow.get_experiment(active.info.experiment_id)
        return Parent(
            experiment=str(experiment.name), nested=True, tags={_PARENT: str(active.info.run_id)}
        )
    name = os.environ.get("MLFLOW_EXPERIMENT_NAME")
    identity = os.environ.get("MLFLOW_EXPERIMENT_ID")
    if mlflow is not None and not name and identity:
        name = str(mlflow.get_experiment(identity).name)
    return Parent(experiment=name or None)
