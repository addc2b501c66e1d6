"""The table of several attempts, gathered from their backends and from MLflow."""

import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

from sgpu_decl.model.attempt import AttemptRef
from sgpu_decl.model.attempt_view import AttemptView
from sgpu_decl.model.jsonable import Json
from sgpu_decl.model.matrix_cell import cell_values
from sgpu_decl.model.run_table import RunRow, RunTable

__all__ = ["run_table"]

_READERS = 8  # attempts whose results are read at once: elsewhere each takes requests


def run_table(
    views: Sequence[AttemptView], results: Callable[[AttemptRef], list[dict[str, Json]]]
) -> RunTable:
    """Return the table of attempts, in their order.

    Args:
        views: the attempts with their links.
        results: what the ranks of one returned, with secrets masked.
    """
    from sgpu_decl.tracking.last_metrics import read_last_metrics

    stores: dict[str, dict[str, str]] = {}
    for view in views:
        if tracked := _tracked(view):
            uri, run_id, experiment_id = tracked
            stores.setdefault(uri, {})[run_id] = experiment_id
    metrics, problems = read_last_metrics(stores, os.environ) if stores else ({}, ())
    with ThreadPoolExecutor(_READERS, thread_name_prefix="results") as pool:
        read = pool.map(lambda view: [] if view.unavailable else results(view.ref), views)
        rows = tuple(
            RunRow(
                view=view,
                axes=cell_values(view.ref.address.key),
                returned=_returned(of_ranks),
                metrics=metrics.get((_tracked(view) or ("", "", ""))[1], {}),
                with_secrets=tuple(item for item in of_ranks if item.get("secrets")),
            )
            for view, of_ranks in zip(views, read, strict=True)
        )
    return RunTable(rows=rows, problems=problems)


def _returned(results: Sequence[Mapping[str, Json]]) -> Mapping[str, Json]:
    """What the lowest rank that returned a value did, by key."""
    first = next((item["value"] for item in results if item["value"] is not None), None)
    if first is None:
        return {}
    if not isinstance(first, Mapping):
        return {"value": first}
    if first.keys() == {"pickle", "repr"}:
        return {"value": first["repr"]}
    return {str(key): value for key, value in first.items()}


def _tracked(view: AttemptView) -> tuple[str, str, str] | None:
    """The tracking URI, the run's id and the experiment's of an attempt that MLflow tracks."""
    link = view.links.get("mlflow")
    if not isinstance(link, Mapping):
        return None
    uri, run_id, experiment = map(link.get, ("tracking_uri", "run_id", "experiment_id"))
    if not (isinstance(uri, str) and isinstance(run_id, str)):
        return None
    return uri, run_id, str(experiment)
