"""The push of an attempt's MLflow run from the local store to a server that was down.

MLflow's own client copies metrics with all their steps, parameters, tags and artifacts, of the
attempt's run and of the runs that its ranks made beside it. A tag identifies a run that was pushed
before, so a second push creates nothing twice.
"""

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from mlflow import MlflowClient
from mlflow.entities import Metric, Param, Run, RunTag
from mlflow.exceptions import MlflowException

from sgpu_decl.diagnostics.masks import mask
from sgpu_decl.scratch_folders import scratch_folder
from sgpu_decl.tracking.stores.client import PATIENCE
from sgpu_decl.tracking.stores.store_protocol import StoreError
from sgpu_decl.tracking.tracker_files import change_record, read_record
from sgpu_decl.tracking.tracking_request import BATCH

_ORIGIN = "sgpu.origin_run_id"  # on the server: the id that a run has in the local store
_PARENT = "mlflow.parentRunId"
_METRICS = 1000  # MAX_METRICS_PER_BATCH there


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncResult:
    """`run_id` is the id of the attempt's run on the server; `left` names the kinds of data that
    were not pushed."""

    tracking_uri: str
    run_id: str
    runs: int
    metrics: int
    artifacts: int
    left: tuple[str, ...]


def push_run(folder: Path, server: str) -> SyncResult:
    """Push the runs of the attempt in `folder`, which has ended, to a server.

    Raises:
        StoreError: the server does not take them, or is still down.
    """
    for name, value in {**PATIENCE, "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true"}.items():
        os.environ.setdefault(name, value)
    record = read_record(folder) or {}
    try:
        push = _Push(MlflowClient(str(record["tracking_uri"])), MlflowClient(server))
        result = push.carry_out(str(record["run_id"]), server)
    except MlflowException as error:
        raise StoreError(str(error)) from error
    synced = {"tracking_uri": server, "run_id": result.run_id}
    change_record(folder, synced=synced)
    return result


class _Push:
    def __init__(self, here: MlflowClient, there: MlflowClient) -> None:
        self._here = here
        self._there = there
        self._metrics = 0
        self._artifacts = 0
        self._left: dict[str, None] = {}

    def carry_out(self, run_id: str, server: str) -> SyncResult:
        ids: dict[str, str] = {}  # ids here to ids on the server
        runs = list(self._family(self._here.get_run(run_id)))
        for run in runs:
            ids[run.info.run_id] = self._push(run, ids)
        return SyncResult(
            tracking_uri=mask(server),
            run_id=ids[run_id],
            runs=len(runs),
            metrics=self._metrics,
            artifacts=self._artifacts,
            left=tuple(self._left),
        )

    def _family(self, own: Run) -> "Iterator[Run]":
        """The attempt's run, then the others that its ranks made here, parents before children."""
        yield own
        visited = {own.info.run_id}
        experiments = [experiment.experiment_id for experiment in self._here.search_experiments()]
        same = " and ".join(
            f"tags.`{name}` = '{own.data.tags[name]}'" for name in ("sgpu.address", "sgpu.attempt")
        )
        others = [*self._search(experiments, same)]
        others += self._search(experiments, f"tags.`{_PARENT}` = '{own.info.run_id}'")
        for run in sorted(others, key=lambda run: int(run.info.start_time)):
            if run.info.run_id not in visited and self._is_of(run, own):
                visited.add(run.info.run_id)
                yield run

    @staticmethod
    def _is_of(run: Run, own: Run) -> bool:
        """Whether a run belongs to this attempt: a new state of the project counts attempts from
        one again, so address and number alone do not tell."""
        token = run.data.tags.get("sgpu.token", own.data.tags.get("sgpu.token"))
        return bool(token == own.data.tags.get("sgpu.token"))

    def _search(self, experiments: list[str], query: str) -> "list[Run]":
        runs: list[Run] = []
        token = None
        while True:
            page = self._here.search_runs(experiments, query, max_results=1000, page_token=token)
            runs += page
            token = page.token
            if not token:
                return runs

    def _push(self, run: Run, ids: Mapping[str, str]) -> str:
        name = str(self._here.get_experiment(run.info.experiment_id).name)
        experiment = self._experiment(name)
        tags = {**run.data.tags, _ORIGIN: run.info.run_id}
        if tags.get(_PARENT) in ids:
            tags[_PARENT] = ids[tags[_PARENT]]
        there = self._find(experiment, run.info.run_id)
        if there is None:
            run_there = self._there.create_run(
                experiment, start_time=run.info.start_time, run_name=run.info.run_name,
                tags={_ORIGIN: run.info.run_id},
            )  # fmt: skip
            there = str(run_there.info.run_id)
        self._values(there, [Param(*pair) for pair in run.data.params.items()], tags)
        for key in run.data.metrics:
            self._log(there, self._here.get_metric_history(run.info.run_id, key))
        self._files(run.info.run_id, there)
        if run.inputs is not None and run.inputs.dataset_inputs:
            self._left["datasets"] = None
        if run.outputs is not None and run.outputs.model_outputs:
            self._left["logged models"] = None
        self._there.set_terminated(there, run.info.status, run.info.end_time)
        return there

    def _experiment(self, name: str) -> str:
        experiment = self._there.get_experiment_by_name(name)
        return str(experiment.experiment_id if experiment else self._there.create_experiment(name))

    def _find(self, experiment: str, origin: str) -> str | None:
        runs = self._there.search_runs([experiment], f"tags.`{_ORIGIN}` = '{origin}'")
        return str(runs[0].info.run_id) if runs else None

    def _values(self, run_id: str, params: list[Param], tags: Mapping[str, str]) -> None:
        pairs = [RunTag(*pair) for pair in tags.items()]
        for start in range(0, max(len(params), len(pairs)), BATCH):
            end = start + BATCH
            self._there.log_batch(run_id, params=params[start:end], tags=pairs[start:end])

    def _log(self, run_id: str, history: list[Metric]) -> None:
        for start in range(0, len(history), _METRICS):
            self._there.log_batch(run_id, metrics=history[start : start + _METRICS])
        self._metrics += len(history)

    def _files(self, here: str, there: str) -> None:
        if not self._here.list_artifacts(here):
            return
        with scratch_folder("sync") as folder:
            artifacts = Path(self._here.download_artifacts(here, "", os.fspath(folder)))
            self._there.log_artifacts(there, str(artifacts))
            self._artifacts += sum(1 for path in artifacts.rglob("*") if path.is_file())
