"""What the tracker of a local attempt is asked to record."""

import os
from pathlib import Path
from typing import TYPE_CHECKING

from sgpu_decl.backends.base import Launching
from sgpu_decl.rendering.spec import TrackerSpec
from sgpu_decl.system_errors import path_in_errors
from sgpu_decl.tracking.request import FILE, request, to_json
from sgpu_decl.tracking.tracker_launch import tracker_spec

if TYPE_CHECKING:
    from sgpu_decl.config.run import RunConfig

__all__ = ["prepare_tracker"]

# MLflow's own variables hold where the run says nothing: exported, or in `env.variables`.
_EXPERIMENT = "MLFLOW_EXPERIMENT_NAME"
_STORE = "MLFLOW_TRACKING_URI"


def prepare_tracker(
    folder: Path,
    *,
    config: "RunConfig",
    launching: Launching,
    project: Path,
    home: Path,
    python: str,
) -> TrackerSpec | None:
    """Write the tracker's request into the attempt folder; return the command that serves it.

    `None` where tracking is off or MLflow is not installed: the run then goes untracked.
    """
    command = tracker_spec(enabled=config.mlflow.enabled)
    if command is None:
        return None
    variables = {**os.environ, **config.env.variables}
    named = variables.get(_EXPERIMENT)
    asked = request(
        ref=launching.ref,
        spec=launching.inputs.spec,
        home=home,
        base=(project / launching.record.owner).parent,
        token=launching.record.token,
        experiment=config.mlflow.experiment or named,
        names_experiment=bool(named),
        run_name=config.mlflow.run_name,
        tracking_uri=config.mlflow.tracking_uri or variables.get(_STORE),
        artifact_location=config.mlflow.artifact_location,
        system_metrics=config.mlflow.system_metrics,
        facts={
            "lineage": launching.record.lineage,
            "code_digest": launching.inputs.code_digest or "none",
            "python": python,
        },
        git=launching.git,
        tags={**config.tags, **(launching.call.tags if launching.call else {})},
    )
    path = folder / FILE
    path.touch(mode=0o600)
    with path_in_errors(path), open(path, "w", encoding="utf-8") as file:
        file.write(to_json(asked))
        file.flush()
    return TrackerSpec(argv=tuple(command["argv"]), env=dict(command["env"]))
