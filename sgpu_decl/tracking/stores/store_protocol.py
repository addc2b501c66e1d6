"""The protocol of MLflow stores: by SQL, by REST, or by MLflow's own client."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from sgpu_decl.tracking.mlflow_status import TrackedOutcome
from sgpu_decl.tracking.tracking_request import TrackingRequest

T = TypeVar("T")

# MLflow opens such an experiment as one of model training: what its pages show then are runs and
# metrics, not traces. `ExperimentKind` of mlflow/server/js, also in its onboarding skill.
EXPERIMENT_TAGS = {"mlflow.experimentKind": "custom_model_development"}


class StoreError(Exception):
    """A store did not do what it was asked. The text says why."""


MetricRow = tuple[str, float, int]
"""The name of a metric, its value, and its step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CreatedRun:
    run_id: str
    experiment_id: str


MetricHistory = dict[str, list[tuple[int, float]]]
"""Steps and values by the name of a metric, in their order."""


class RunStore(Protocol):
    def create(self, request: TrackingRequest) -> CreatedRun:
        """Create a run with its tags, and its experiment if there is none of that name.

        Raises:
            StoreError: it cannot be created.
        """

    def resume(self, request: TrackingRequest) -> CreatedRun | None:
        """Find the run that was created for the same token, and set it running again; None if there
        is none.

        Raises:
            StoreError: the store does not answer.
        """

    def record(self, run_id: str, request: TrackingRequest) -> None:
        """Record the parameters of a run.

        Raises:
            StoreError: they cannot be recorded.
        """

    def last_metrics(self, runs: Mapping[str, str]) -> dict[str, dict[str, float]]:
        """Read the last value of each metric, by run id and name.

        Args:
            runs: the experiment's id of each run, by the run's id.

        Raises:
            StoreError: they cannot be read.
        """

    def metric_history(self, run_id: str, names: Sequence[str]) -> MetricHistory:
        """Read all values of metrics.

        Raises:
            StoreError: they cannot be read.
        """

    def log(self, run_id: str, rows: Sequence[MetricRow], moment: int) -> None:
        """Record values of metrics.

        Args:
            moment: when, in milliseconds since the epoch.

        Raises:
            StoreError: they cannot be recorded.
        """

    def finish(self, run_id: str, end: TrackedOutcome) -> None:
        """Give a run its last status; one that was deleted meanwhile is left alone.

        Raises:
            StoreError: it cannot be told now.
        """


def batches(items: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    """The items in their order, at most `size` at once."""
    return (items[start : start + size] for start in range(0, len(items), size))


def filter_of_runs(run_ids: Iterable[str]) -> str:
    """The filter of a search for runs by their ids, in the language of MLflow's `search_runs`."""
    quoted = ", ".join(f"'{run_id}'" for run_id in run_ids)
    return f"attributes.run_id IN ({quoted})"


def token_filter(request: TrackingRequest) -> str:
    """The search for the run of a token. Names with a dot are quoted in MLflow's language of
    filters."""
    return f"tags.`sgpu.token` = '{request.token}'"


def deleted_experiment(name: str) -> StoreError:
    return StoreError(
        f"the experiment `{name}` is deleted; restore it (`mlflow experiments restore`) "
        "or name another in `mlflow.experiment`"
    )
