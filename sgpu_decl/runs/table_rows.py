"""The table of several attempts, gathered from their backends and from MLflow."""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from sgpu_decl.errors import NotFound, SgpuError
from sgpu_decl.model.address import cell_values
from sgpu_decl.model.attempt import AttemptRef, AttemptState
from sgpu_decl.model.attempt_view import AttemptView
from sgpu_decl.model.jsonable import Json
from sgpu_decl.model.run_table import RunRow, RunTable, UnreadResults
from sgpu_decl.tracking.last_metrics import read_last_metrics

if TYPE_CHECKING:
    from sgpu_decl.tracking.last_metrics import MetricSource

_READERS = 8  # attempts whose results are read at once: elsewhere each takes requests


def run_table(
    views: Sequence[AttemptView],
    results: Callable[[AttemptRef], list[dict[str, Json]]],
    freed: Callable[[Sequence[AttemptRef]], Mapping[AttemptRef, NotFound]],
    metric_source: "Callable[[AttemptRef, Mapping[str, Json]], MetricSource | None]",
) -> RunTable:
    """Return the table of attempts, in their order.

    Args:
        views: the attempts with their links.
        results: what the ranks of one returned, with secrets masked.
        freed: which of these left files that were deleted since, each with the error that says so.
        metric_source: where the metrics of an attempt are whose MLflow run a link names.
    """
    tracked = [mlflow_link(view) for view in views]
    runs: dict[MetricSource, dict[str, str]] = {}
    for view, link in zip(views, tracked, strict=True):
        source = metric_source(view.ref, link) if link is not None else None
        if source is not None and link is not None:
            runs.setdefault(source, {})[str(link["run_id"])] = str(link.get("experiment_id"))
    metrics = read_last_metrics(runs)
    unread: dict[AttemptRef, UnreadResults] = {}

    def read(view: AttemptView) -> list[dict[str, Json]]:
        if view.unavailable:
            unread[view.ref] = _unread(view.ref, view.unavailable, view.way_out)
            return []
        try:
            return results(view.ref)
        except NotFound as error:
            unread[view.ref] = UnreadResults(reason=error.message, way_out=error.hint)
        except SgpuError as error:  # the other rows are shown all the same
            unread[view.ref] = _unread(view.ref, error.message, error.hint)
        return []

    with ThreadPoolExecutor(_READERS, thread_name_prefix="results") as pool:
        found = list(pool.map(read, views))
    silent = [
        view.ref
        for view, of_ranks in zip(views, found, strict=True)
        if not (of_ranks or view.ref in unread) and _may_have_left_something(view)
    ]
    unread |= {
        ref: UnreadResults(reason=error.message, way_out=error.hint)
        for ref, error in freed(silent).items()
    }
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
            unread=unread.get(view.ref),
        )
        for view, link, of_ranks in zip(views, tracked, found, strict=True)
    )
    files = tuple(f"{view.ref}: {view.metrics_problem}" for view in views if view.metrics_problem)
    return RunTable(rows=rows, problems=(*metrics.problems, *files))


def _may_have_left_something(view: AttemptView) -> bool:
    started = view.started_at is not None or view.state is AttemptState.LOST
    return started and not view.state.active


def _unread(ref: AttemptRef, why: str, way_out: str | None) -> UnreadResults:
    return UnreadResults(reason=f"what `{ref}` returned cannot be read: {why}", way_out=way_out)


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


def mlflow_link(view: AttemptView) -> Mapping[str, Json] | None:
    """The link of an attempt to its MLflow run, if it has one."""
    link = view.links.get("mlflow")
    return link if isinstance(link, Mapping) and isinstance(link.get("run_id"), str) else None
