"""The table of several attempts, gathered from their backends and from MLflow."""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from sgpu_decl.model.attempt import AttemptRef
from sgpu_decl.model.attempt_view import AttemptView
from sgpu_decl.model.jsonable import Json
from sgpu_decl.model.matrix_cell import cell_values
from sgpu_decl.model.run_table import RunRow, RunTable
from sgpu_decl.tracking.last_metrics import read_last_metrics

if TYPE_CHECKING:
    from sgpu_decl.tracking.last_metrics import MetricSource

__all__ = ["run_table"]

_READERS = 8  # attempts whose results are read at once: elsewhere each takes requests


def run_table(
    views: Sequence[AttemptView],
    results: Callable[[AttemptRef], list[dict[str, Json]]],
    metric_source: "Callable[[AttemptRef, Mapping[str, Json]], MetricSource | None]",
) -> RunTable:
    """Return the table of attempts, in their order.

    Args:
        views: the attempts with their links.
        results: what the ranks of one returned, with secrets masked.
        metric_source: where the metrics of an attempt are whose MLflow run a link names.
    """
    tracked = [_mlflow_link(view) for view in views]
    runs: dict[MetricSource, dict[str, str]] = {}
    for view, link in zip(views, tracked, strict=True):
        source = metric_source(view.ref, link) if link is not None else None
        if source is not None and link is not None:
            runs.setdefault(source, {})[str(link["run_id"])] = str(link.get("experiment_id"))
    metrics = read_last_metrics(runs)
    with ThreadPoolExecutor(_READERS, thread_name_prefix="results") as pool:
        read = pool.map(lambda view: [] if view.unavailable else results(view.ref), views)
        rows = tuple(
            RunRow(
                view=view,
                axes=cell_values(view.ref.address.key),
                returned=_returned(of_ranks),
                metrics={
                    **view.metrics,
                    **(metrics.by_run.get(str(link["run_id"]), {}) if link is not None else {}),
                },
                with_secrets=tuple(item for item in of_ranks if item.get("secrets")),
            )
            for view, link, of_ranks in zip(views, tracked, read, strict=True)
        )
    files = tuple(f"{view.ref}: {view.metrics_problem}" for view in views if view.metrics_problem)
    return RunTable(rows=rows, problems=(*metrics.problems, *files))


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


def _mlflow_link(view: AttemptView) -> Mapping[str, Json] | None:
    """The link of an attempt to its MLflow run, if it has one."""
    link = view.links.get("mlflow")
    return link if isinstance(link, Mapping) and isinstance(link.get("run_id"), str) else None
