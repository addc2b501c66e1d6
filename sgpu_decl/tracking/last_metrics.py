"""The last value of each metric of several MLflow runs, read from the places that keep them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from sgpu_decl.atomic_files import write_atomic
from sgpu_decl.tracking.store_location import sqlite_file
from sgpu_decl.tracking.stores.choice import open_client_store, open_tracking_store
from sgpu_decl.tracking.stores.sqlite import artifact_folder
from sgpu_decl.tracking.stores.store_protocol import MetricHistory, StoreError


@dataclass(frozen=True, slots=True, kw_only=True)
class LastMetrics:
    """The values by the id of a run and the name of a metric. `problems` say which are missing, and
    why."""

    by_run: Mapping[str, Mapping[str, float]]
    problems: tuple[str, ...] = ()


class MetricSource(Protocol):
    """A place that keeps metrics of MLflow runs. Sources that are equal are one place."""

    def last_metrics(self, runs: Mapping[str, str]) -> LastMetrics:
        """Read the last values. What cannot be read is a problem, and no error.

        Args:
            runs: the experiment's id of each run, by the run's id.
        """

    def metric_history(self, run_id: str, names: Sequence[str]) -> MetricHistory:  # noqa: ARG002
        """Read all values of metrics of a run; empty where that place cannot tell.

        Raises:
            StoreError: it does not answer.
        """
        return {}

    def log_text(self, run_id: str, name: str, text: str) -> None:  # noqa: ARG002
        """Keep a text as an artifact of a run, in the place of an older one of that name.

        Raises:
            StoreError: that place takes none, or not now.
        """
        raise StoreError("only MLflow's own pages of that place take files")

    def serve_pages(self, port: int, ready: Callable[[], None]) -> None:  # noqa: ARG002
        """Serve MLflow's pages of a place on another machine, at a loopback port of this one, until
        this process is interrupted. `ready` is called once they can be opened.

        Raises:
            StoreError: it is no such place.
            BackendError: MLflow does not start there, or the connection was lost.
        """
        raise StoreError("that place has pages of its own, or is on this machine")


@dataclass(frozen=True, slots=True)
class UnreadMetrics(MetricSource):
    """A place that may not be asked, with the reason."""

    problem: str

    def last_metrics(self, runs: Mapping[str, str]) -> LastMetrics:  # noqa: ARG002  the protocol's
        return LastMetrics(by_run={}, problems=(self.problem,))


@dataclass(frozen=True, slots=True)
class TrackingStore(MetricSource):
    """The store of an absolute tracking URI. `environ` has the credentials of servers."""

    uri: str
    environ: Mapping[str, str] = field(compare=False, repr=False)

    def last_metrics(self, runs: Mapping[str, str]) -> LastMetrics:
        path = sqlite_file(self.uri)
        if path is not None and not path.exists():  # it was deleted, and opening it would make one
            return LastMetrics(by_run={})
        try:
            store = open_tracking_store(self.uri, environ=self.environ)
            return LastMetrics(by_run=store.last_metrics(runs))
        except StoreError as error:
            return LastMetrics(by_run={}, problems=(str(error),))

    def metric_history(self, run_id: str, names: Sequence[str]) -> MetricHistory:
        path = sqlite_file(self.uri)
        if path is not None and not path.exists():
            return {}
        store = open_tracking_store(self.uri, environ=self.environ)
        return store.metric_history(run_id, names)

    def log_text(self, run_id: str, name: str, text: str) -> None:
        path = sqlite_file(self.uri)
        folder = artifact_folder(path, run_id) if path is not None else None
        if folder is None:
            open_client_store(self.uri).log_text(run_id, name, text)
            return
        try:
            folder.mkdir(parents=True, exist_ok=True)
            write_atomic(folder / name, text.encode("utf-8", "replace"), durable=False)
        except OSError as error:
            raise StoreError(f"`{folder / name}`: {error.strerror}") from error


def read_last_metrics(runs_by_source: Mapping[MetricSource, Mapping[str, str]]) -> LastMetrics:
    """Return the metrics of runs that lie in several places, each of which is asked once.

    Args:
        runs_by_source: the runs of each place, as `MetricSource.last_metrics` takes them.
    """
    by_run: dict[str, Mapping[str, float]] = {}
    problems: list[str] = []
    for source, runs in runs_by_source.items():
        metrics = source.last_metrics(runs)
        by_run |= metrics.by_run
        problems += metrics.problems
    return LastMetrics(by_run=by_run, problems=tuple(problems))
