"""The request to a tracker: the file `tracking.json` of an attempt folder.

    {"token", "experiment", "names_experiment": bool, "run_name", "tracking_uri",
     "artifacts": folder or null, "home": folder or null, "system_metrics": bool,
     "params": {name: text}, "tags": {name: text}}

The tracker reads it, which also runs on nodes that have no other part of sgpu.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass

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
