"""The last value of each metric of several MLflow runs, read from the stores that have them."""

from collections.abc import Mapping

from sgpu_decl.tracking.store_location import sqlite_file
from sgpu_decl.tracking.stores.choice import open_tracking_store
from sgpu_decl.tracking.stores.store_protocol import StoreError

__all__ = ["read_last_metrics"]


def read_last_metrics(
    runs_by_store: Mapping[str, Mapping[str, str]], environ: Mapping[str, str]
) -> tuple[dict[str, dict[str, float]], tuple[str, ...]]:
    """Return the metrics by run id and name, and why stores could not be read.

    Args:
        runs_by_store: by tracking URI, the experiment's id of each run by the run's id.
        environ: has the credentials of servers.
    """
    metrics: dict[str, dict[str, float]] = {}
    problems = []
    for uri, runs in runs_by_store.items():
        path = sqlite_file(uri)
        try:
            if path is None or path.exists():  # opening a store that was deleted would make one
                metrics |= open_tracking_store(uri, environ=environ).last_metrics(runs)
        except StoreError as error:
            problems.append(str(error))
    return metrics, tuple(problems)
