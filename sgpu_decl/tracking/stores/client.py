"""A store by MLflow's own client, which knows all stores and takes seconds to import."""

import os
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TypeVar

from mlflow import MlflowClient
from mlflow.entities import Metric, Param, RunTag
from mlflow.exceptions import MlflowException

from sgpu_decl.tracking.mlflow_status import TrackedOutcome
from sgpu_decl.tracking.store_location import refused_login
from sgpu_decl.tracking.stores.store_protocol import (
    EXPERIMENT_TAGS,
    CreatedRun,
    MetricHistory,
    MetricRow,
    StoreError,
    batches,
    deleted_experiment,
    filter_of_runs,
    token_filter,
)
from sgpu_decl.tracking.tracking_request import BATCH, TrackingRequest

TRIES = 6
PATIENCE = {"MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2", "MLFLOW_HTTP_REQUEST_TIMEOUT": "8"}
"""Set before MLflow is used, which retries for minutes by default if a server is down."""
T = TypeVar("T")


class ClientRunStore:
    """`shared` means that other trackers write the same database file: steps that fail because of
    that are retried. For servers MLflow's client does that itself."""

    def __init__(self, uri: str, *, shared: bool) -> None:
        for name, value in PATIENCE.items():
            os.environ.setdefault(name, value)
        self._tries = TRIES if shared else 1
        self._uri = uri
        self._client: MlflowClient = self._try(partial(MlflowClient, tracking_uri=uri))

    def create(self, request: TrackingRequest) -> CreatedRun:
        experiment = self._try(partial(self._experiment, request))
        tags = list(request.tags.items())
        create = partial(
            self._client.create_run, experiment, run_name=request.run_name, tags=dict(tags[:BATCH])
        )
        run_id = str(self._try(create).info.run_id)
        for start in range(BATCH, len(tags), BATCH):
            batch = [RunTag(*pair) for pair in tags[start : start + BATCH]]
            self._try(partial(self._client.log_batch, run_id, tags=batch))
        return CreatedRun(run_id=run_id, experiment_id=experiment)

    def resume(self, request: TrackingRequest) -> CreatedRun | None:
        experiment = self._try(partial(self._experiment, request))
        search = partial(
            self._client.search_runs, [experiment], token_filter(request), max_results=1
        )
        for run in self._try(search):
            run_id = str(run.info.run_id)
            self._try(partial(self._client.update_run, run_id, "RUNNING"))
            return CreatedRun(run_id=run_id, experiment_id=experiment)
        return None

    def record(self, run_id: str, request: TrackingRequest) -> None:
        params = [Param(name, value) for name, value in request.params.items()]
        for start in range(0, len(params), BATCH):
            batch = params[start : start + BATCH]
            self._try(partial(self._client.log_batch, run_id, params=batch))

    def last_metrics(self, runs: Mapping[str, str]) -> dict[str, dict[str, float]]:
        metrics: dict[str, dict[str, float]] = {}
        for some in batches(sorted(runs), BATCH):
            experiments = sorted({runs[run_id] for run_id in some})
            search = partial(self._client.search_runs, experiments, filter_of_runs(some))
            for run in self._try(search):
                metrics[str(run.info.run_id)] = dict(run.data.metrics)
        return metrics

    def metric_history(self, run_id: str, names: Sequence[str]) -> MetricHistory:
        history: MetricHistory = {}
        for name in names:
            rows = self._try(partial(self._client.get_metric_history, run_id, name))
            history[name] = sorted((row.step, row.value) for row in rows)
        return history

    def log_text(self, run_id: str, name: str, text: str) -> None:
        """Keep a text as an artifact of a run. Raises StoreError."""
        self._try(partial(self._client.log_text, run_id, text, name))

    def log(self, run_id: str, rows: Sequence[MetricRow], moment: int) -> None:
        metrics = [Metric(name, value, moment, step) for name, value, step in rows]
        for some in batches(metrics, BATCH):
            self._try(partial(self._client.log_batch, run_id, metrics=some))

    def finish(self, run_id: str, end: TrackedOutcome) -> None:
        # The status first: it is what counts if the store fails now.
        self._try(partial(self._client.set_terminated, run_id, end.status, end.ended_at))
        tags = [RunTag(name, value) for name, value in end.tags.items()]
        self._try(partial(self._client.log_batch, run_id, tags=tags))

    def _experiment(self, request: TrackingRequest) -> str:
        """Return the experiment's id; if two create it at once, both get the same."""
        experiment = self._client.get_experiment_by_name(request.experiment)
        if experiment is None:
            try:
                return str(
                    self._client.create_experiment(
                        request.experiment, request.artifacts, tags=dict(EXPERIMENT_TAGS)
                    )
                )
            except MlflowException as error:
                if error.error_code != "RESOURCE_ALREADY_EXISTS":
                    raise
            experiment = self._client.get_experiment_by_name(request.experiment)
        if experiment is None or experiment.lifecycle_stage == "deleted":
            raise deleted_experiment(request.experiment)
        return str(experiment.experiment_id)

    def _try(self, step: Callable[[], T]) -> T:
        errors: tuple[type[Exception], ...] = (*_store_errors(), OSError)
        for attempt in range(self._tries):
            try:
                return step()
            except errors as error:
                if attempt + 1 == self._tries:
                    raise StoreError(str(error)) from error
                time.sleep(0.1 * 2**attempt)
            except ValueError as error:  # of the login of a platform, which MLflow uses
                words = refused_login(self._uri, error, os.environ)
                if words is None:
                    raise
                raise StoreError(words) from error
        raise AssertionError("no tries")


def _store_errors() -> tuple[type[Exception], ...]:
    """The errors of MLflow, and those of its database that it passes on."""
    try:
        from sqlalchemy.exc import SQLAlchemyError
    except ImportError:  # mlflow-skinny, which speaks to servers only
        return (MlflowException,)
    return (MlflowException, SQLAlchemyError)
