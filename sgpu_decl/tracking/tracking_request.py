"""The start of an attempt's tracker: its command, and its request, the file `tracking.json`:

    {"token", "experiment", "names_experiment": bool, "run_name", "tracking_uri",
     "artifacts": folder or null, "home": folder or null, "system_metrics": bool,
     "params": {name: text}, "tags": {name: text}}

The tracker reads the request, which also runs on nodes that have no other part of sgpu.
"""

import json
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from typing import TypedDict

FILE = "tracking.json"
BATCH = 100  # MAX_PARAMS_TAGS_PER_BATCH of mlflow.utils.validation


@dataclass(frozen=True, slots=True, kw_only=True)
class TrackingRequest:
    """`artifacts` is where a new experiment keeps its artifacts; None leaves it to the store.
    `names_experiment` says that the ranks' environment names an experiment, which has to be this
    one then. `token` is the attempt's. `home` is the project's `.sgpu` folder, which holds the
    local store; None on a node, which has none."""

    token: str
    experiment: str
    names_experiment: bool
    run_name: str
    tracking_uri: str
    artifacts: str | None
    home: str | None
    system_metrics: bool
    params: Mapping[str, str]
    tags: Mapping[str, str]


def to_json(tracking: TrackingRequest) -> str:
    return json.dumps(asdict(tracking), sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def from_json(text: str) -> TrackingRequest:
    """Read what `to_json` wrote.

    Raises:
        ValueError, TypeError: the text is something else.
    """
    return TrackingRequest(**json.loads(text))


class TrackerCommand(TypedDict):
    argv: list[str]
    env: dict[str, str]


ENVIRONMENT = {
    "PYTHONSAFEPATH": "1",  # nothing in a working folder shadows our modules
    "GIT_PYTHON_REFRESH": "quiet",  # git may be missing
    "MLFLOW_DISABLE_TELEMETRY": "true",
}
"""What every tracker gets."""


def available() -> bool:
    """Tell whether this interpreter has MLflow, without importing it (that takes a second)."""
    return find_spec("mlflow") is not None


def tracker_spec(*, enabled: bool) -> TrackerCommand | None:
    """Return the command of the tracker process, or None if the attempt is not tracked.

    On this machine the tracker runs in the interpreter of sgpu: that of the ranks may have no
    MLflow, and a start from an archive takes longer. It reads `tracking.json` in the attempt
    folder, which `SGPU_RUN_DIR` names.
    """
    if not enabled or not available():
        return None
    return {
        "argv": [sys.executable, "-m", "sgpu_decl.tracking.tracker"],
        "env": dict(ENVIRONMENT),
    }
