"""What the tracker of a local attempt is asked to record."""

import os
from pathlib import Path

from sgpu_decl.backends.base import Launching
from sgpu_decl.config.run import RunConfig
from sgpu_decl.rendering.spec import Tracker
from sgpu_decl.tracking.launching import tracker_spec
from sgpu_decl.tracking.request import FILE, request, to_json

__all__ = ["prepare_tracker"]


def prepare_tracker(
    folder: Path,
    *,
    config: RunConfig,
    launching: Launching,
    project: Path,
    home: Path,
    python: str,
) -> Tracker | None:
    """Write the tracker's request into the attempt folder; return the command that serves it.

    `None` where tracking is off or MLflow is not installed: the run then goes untracked.
    """
    command = tracker_spec(enabled=config.mlflow.enabled)
    if command is None:
        return None
    asked = request(
        ref=launching.ref,
        spec=launching.spec,
        home=home,
        base=(project / launching.owner).parent,
        experiment=config.mlflow.experiment,
        run_name=config.mlflow.run_name,
        tracking_uri=config.mlflow.tracking_uri or os.environ.get("MLFLOW_TRACKING_URI"),
        system_metrics=config.mlflow.system_metrics,
        facts={
            "lineage": launching.lineage,
            "token": launching.token,
            "code_digest": launching.code_digest or "none",
            "python": python,
        },
        tags={**config.tags, **(launching.call.tags if launching.call else {})},
    )
    path = folder / FILE
    path.touch(mode=0o600)
    path.write_text(to_json(asked), encoding="utf-8")
    return Tracker(argv=tuple(command["argv"]), env=dict(command["env"]))
