"""The last value of each metric of several MLflow runs, read from the places that keep them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from sgpu_decl.tracking.store_location import sqlite_file
from sgpu_decl.tracking.stores.choice import open_tracking_store
from sgpu_decl.tracking.stores.store_protocol import StoreError


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


@dataclass(frozen=True, slots=True)
class UnreadMetrics:
    """A place that may not be asked, with the reason."""

    problem: str

    def last_metrics(self, runs: Mapping[str, str]) -> LastMetrics:  # noqa: ARG002  the protocol's
        return LastMetrics(by_run={}, problems=(self.problem,))


@dataclass(frozen=True, slots=True)
class TrackingStore:
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
