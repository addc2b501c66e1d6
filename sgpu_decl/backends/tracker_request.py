"""What the tracker of an attempt records, on every backend whose platform makes no MLflow run."""

import os
from pathlib import Path

from sgpu_decl.backends.launch_request import LaunchRequest
from sgpu_decl.backends.tracking_uri import store_of
from sgpu_decl.tracking.plain_folder import link_plain_folder
from sgpu_decl.tracking.run_description import request
from sgpu_decl.tracking.tracking_request import TrackingRequest

# MLflow's own variables hold where the run says nothing: exported, or in `env.variables`.
_EXPERIMENT = "MLFLOW_EXPERIMENT_NAME"


def tracker_request(
    launching: LaunchRequest, *, project: Path, home: Path, python: str
) -> TrackingRequest:
    """Return what the tracker is asked to record.

    Args:
        home: the project's `.sgpu` folder, which holds the default store.
        python: the interpreter of the ranks.
    """
    config, base = launching.config, launching.folder(project)
    for folder in (home, base):
        link_plain_folder(folder)
    variables = {**os.environ, **config.env.variables}
    experiment = variables.get(_EXPERIMENT)
    return request(
        ref=launching.ref,
        spec=launching.inputs.spec,
        home=home,
        base=base,
        token=launching.record.token,
        experiment=config.mlflow.experiment or experiment,
        names_experiment=bool(experiment),
        run_name=config.mlflow.run_name,
        tracking_uri=store_of(config, os.environ),
        artifact_location=config.mlflow.artifact_location,
        system_metrics=config.mlflow.system_metrics,
        facts={**launching.facts, "python": python},
        git=launching.git,
        tags=launching.tags,
    )
