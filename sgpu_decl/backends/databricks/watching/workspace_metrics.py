"""The metrics of attempts in the MLflow of their workspace, which the SDK's login reads, too."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sgpu_decl.backends.databricks.api.sdk_errors import FINAL
from sgpu_decl.backends.databricks.watching.run_artifacts import artifacts_of
from sgpu_decl.backends.databricks.workspace import Workspace
from sgpu_decl.errors import SgpuError
from sgpu_decl.places.file_place import PlaceMissing
from sgpu_decl.tracking.last_metrics import LastMetrics, MetricSource
from sgpu_decl.tracking.stores.store_protocol import MetricHistory, StoreError

if TYPE_CHECKING:
    from databricks.sdk.service.ml import Run

_PAGE = 1000  # runs of one answer; the SDK's reference allows 50,000


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkspaceMetrics(MetricSource):
    """A `MetricSource`: the MLflow of a workspace, asked about runs of the state with this
    `lineage`. They were launched in the workspace with this `host` and `workspace_id`, as far as
    that is known.

    The search that the platform documents has no set of ids among its conditions. So each
    experiment is searched for the tag that sgpu writes to its runs, page by page. A run without it,
    such as one that this user may not write to, is asked for by its id (evidence: D7).
    """

    workspace: Workspace
    lineage: str
    host: str | None
    workspace_id: str | None

    def last_metrics(self, runs: Mapping[str, str]) -> LastMetrics:
        by_run: dict[str, Mapping[str, float]] = {}
        problems: list[str] = []
        try:
            if (problem := self._other_workspace()) is not None:
                return LastMetrics(by_run={}, problems=(problem,))
        except SgpuError as error:
            return LastMetrics(by_run={}, problems=(error.message,))
        for experiment in sorted({*runs.values()}):
            wanted = {run_id for run_id, of in runs.items() if of == experiment}
            try:
                for run_id, run in self._runs(experiment, wanted):
                    by_run[run_id] = _values(run)
            except SgpuError as error:
                problems.append(error.message)
                if error.code not in FINAL:
                    break  # the workspace does not answer: waiting again would not help
        return LastMetrics(by_run=by_run, problems=tuple(problems))

    def metric_history(self, run_id: str, names: Sequence[str]) -> MetricHistory:
        connection = self.workspace.connection
        history: MetricHistory = {}
        try:
            with connection.explained(f"reading metrics of the MLflow run {run_id}"):
                for name in names:
                    rows = connection.client.experiments.get_history(name, run_id=run_id)
                    history[name] = sorted(
                        (row.step or 0, float(row.value)) for row in rows if row.value is not None
                    )
        except SgpuError as error:
            raise StoreError(error.message) from error
        return history

    def log_text(self, run_id: str, name: str, text: str) -> None:
        try:
            if (problem := self._other_workspace()) is not None:
                raise StoreError(problem)
            artifacts_of(self.workspace.connection, run_id).write(name, text.encode())
        except (SgpuError, PlaceMissing) as error:
            raise StoreError(str(error)) from error

    def _other_workspace(self) -> str | None:
        """That the login is for another workspace, where it is. Raises SgpuError."""
        facts = {"host": self.host, "workspace": self.workspace_id}
        if self.host is None or self.workspace.identity.is_workspace_of(facts):
            return None
        return f"they are in `{self.host}`, and the login is for `{self.workspace.identity.host}`"

    def _runs(self, experiment: str, wanted: set[str]) -> "Iterator[tuple[str, Run]]":
        """Those of the `wanted` runs of an experiment that are there. Raises SgpuError."""
        connection = self.workspace.connection
        api = connection.client.experiments
        from databricks.sdk.service.ml import ViewType

        doing = f"reading metrics of the MLflow experiment {experiment}"
        left = {*wanted}
        with connection.explained(doing):
            for run in api.search_runs(
                experiment_ids=[experiment],
                filter=f"tags.\"sgpu.lineage\" = '{self.lineage}'",
                max_results=_PAGE,
                run_view_type=ViewType.ALL,
            ):
                run_id = run.info.run_id if run.info is not None else None
                if run_id is not None and run_id in left:
                    left.remove(run_id)
                    yield run_id, run
                if not left:
                    return
        for run_id in sorted(left):
            with suppress(PlaceMissing), connection.explained(doing):
                if (one := api.get_run(run_id).run) is not None:
                    yield run_id, one


def _values(run: "Run") -> dict[str, float]:
    """The metrics of an answer: the last value of each. What JSON has no number for, such as NaN,
    comes as text."""
    metrics = run.data.metrics if run.data is not None else None
    return {
        metric.key: float(metric.value)
        for metric in metrics or ()
        if metric.key is not None and metric.value is not None
    }
