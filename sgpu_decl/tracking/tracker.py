"""The tracker process: makes an attempt's MLflow run, waits for its end, says how it went.

The supervisor starts it beside the ranks with a pipe as its standard input. It writes `mlflow.json`
(the run's id and the variables that ranks need, or an error), blocks until that pipe ends, and then
gives the run the attempt's true status. Only this process imports MLflow.
"""

import fcntl
import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from sgpu_decl.agent.reading import read_attempt
from sgpu_decl.model.jsonable import Json
from sgpu_decl.tracking.locating import lock_file
from sgpu_decl.tracking.outcome import outcome
from sgpu_decl.tracking.request import FILE, TrackingRequest, from_json

if TYPE_CHECKING:
    from mlflow import MlflowClient

__all__ = ["main"]

BATCH = 100  # MAX_PARAMS_TAGS_PER_BATCH of mlflow.utils.validation
TRIES = 6
# A server that is away must not keep this process for the minutes that MLflow would try by itself.
_PATIENCE = {"MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2", "MLFLOW_HTTP_REQUEST_TIMEOUT": "8"}
T = TypeVar("T")


def main() -> int:
    """Track the attempt that `SGPU_RUN_DIR` names; return the exit code."""
    folder = Path(os.environ["SGPU_RUN_DIR"])
    os.umask(0o077)
    for name, value in _PATIENCE.items():
        os.environ.setdefault(name, value)
    try:
        asked = from_json((folder / FILE).read_text(encoding="utf-8"))
        client, run_id = _open(asked, folder)
    except ImportError as error:
        return _refuse(folder, error)
    except _failures() as error:
        return _refuse(folder, error)
    stop = _measure(asked, run_id)
    sys.stdin.buffer.read()
    stop()
    try:
        _finish(client, run_id, asked, folder)
    except _mlflow_errors() as error:
        _say(f"the MLflow run {run_id} keeps a wrong status: {error}")
        return 1
    return 0


def _refuse(folder: Path, error: Exception) -> int:
    """Say that there is no run: ranks wait for this file, without it each would wait in vain."""
    _write(folder / "mlflow.json", {"error": f"{type(error).__name__}: {error}"})
    _say(f"no MLflow run: {error}")
    return 1


def _open(asked: TrackingRequest, folder: Path) -> "tuple[MlflowClient, str]":
    """Create the run, tell the ranks of it, then record what takes longer."""
    home = Path(asked.home)
    home.mkdir(parents=True, exist_ok=True)
    # MLflow takes the artifact root of its `Default` experiment from the working folder.
    os.chdir(home)
    from mlflow import MlflowClient

    with _alone(lock_file(asked.tracking_uri)):
        client = _patiently(asked, lambda: MlflowClient(tracking_uri=asked.tracking_uri))
        experiment = _patiently(asked, lambda: _experiment(client, asked))
    tags = dict(list(asked.tags.items())[:BATCH])
    run = _patiently(
        asked, lambda: client.create_run(experiment, run_name=asked.run_name, tags=tags)
    )
    run_id = str(run.info.run_id)
    _write(
        folder / "mlflow.json",
        {
            "run_id": run_id,
            "experiment_id": experiment,
            "tracking_uri": asked.tracking_uri,
            "experiment": asked.experiment,
            "env": {
                "MLFLOW_TRACKING_URI": asked.tracking_uri,
                "MLFLOW_RUN_ID": run_id,
                "MLFLOW_EXPERIMENT_ID": experiment,
            },
        },
    )
    _record(client, run_id, asked)
    return client, run_id


def _experiment(client: "MlflowClient", asked: TrackingRequest) -> str:
    """Return the experiment's id; where two trackers create it at once, both find the one."""
    from mlflow.exceptions import MlflowException

    found = client.get_experiment_by_name(asked.experiment)
    if found is None:
        try:
            return str(client.create_experiment(asked.experiment, asked.artifacts))
        except MlflowException as error:
            if error.error_code != "RESOURCE_ALREADY_EXISTS":
                raise
        found = client.get_experiment_by_name(asked.experiment)
    if found is None or found.lifecycle_stage == "deleted":
        raise ValueError(
            f"the experiment `{asked.experiment}` is deleted; restore it "
            "(`mlflow experiments restore`) or name another in `mlflow.experiment`"
        )
    return str(found.experiment_id)


def _record(client: "MlflowClient", run_id: str, asked: TrackingRequest) -> None:
    from mlflow.entities import Param, RunTag

    params = [Param(name, value) for name, value in asked.params.items()]
    tags = [RunTag(name, value) for name, value in list(asked.tags.items())[BATCH:]]
    for start in range(0, max(len(params), len(tags)), BATCH):
        end = start + BATCH
        try:
            _patiently(
                asked,
                partial(client.log_batch, run_id, params=params[start:end], tags=tags[start:end]),
            )
        except _mlflow_errors() as error:
            # The run stands; what describes it must not take it from the ranks.
            _say(f"parameters {start} to {end} are not recorded: {error}")


def _finish(client: "MlflowClient", run_id: str, asked: TrackingRequest, folder: Path) -> None:
    from mlflow.entities import RunTag

    end = outcome(_truth(folder))
    # The status first: it is what counts if the store fails now.
    _patiently(asked, lambda: client.set_terminated(run_id, end.status, end.ended_at))
    tags = [RunTag(name, value) for name, value in end.tags.items()]
    _patiently(asked, lambda: client.log_batch(run_id, tags=tags))


def _truth(folder: Path) -> dict[str, object]:
    """Read the attempt once it has ended; a guardian that is still stopping ranks is awaited."""
    deadline = time.monotonic() + 15
    while True:
        truth = read_attempt(folder)
        if truth["state"] != "stopping" or time.monotonic() > deadline:
            return truth
        time.sleep(0.05)


def _measure(asked: TrackingRequest, run_id: str) -> Callable[[], None]:
    """Record this machine's use of CPU, memory and GPUs if psutil is here; return the stop."""
    if not asked.system_metrics or find_spec("psutil") is None:
        return lambda: None
    module = import_module("mlflow.system_metrics.system_metrics_monitor")
    monitor = module.SystemMetricsMonitor(run_id, tracking_uri=asked.tracking_uri)
    monitor.start()

    def stop() -> None:
        monitor.finish()

    return stop


def _patiently(asked: TrackingRequest, step: Callable[[], T]) -> T:
    """Take a step that other trackers may disturb: a database file that is locked or half made.

    Servers are left alone: MLflow's client tries those again itself.
    """
    if lock_file(asked.tracking_uri) is None:
        return step()
    for wait in range(TRIES - 1):
        try:
            return step()
        except _mlflow_errors() as error:
            _say(f"once more in {0.1 * 2**wait:.1f} s: {error}")
            time.sleep(0.1 * 2**wait)
    return step()


def _failures() -> tuple[type[Exception], ...]:
    """What may go wrong while a run is made: the request, the disk, MLflow."""
    return (OSError, TypeError, ValueError, *_mlflow_errors())


def _mlflow_errors() -> tuple[type[Exception], ...]:
    """What MLflow raises itself, and what it lets through from its database."""
    from mlflow.exceptions import MlflowException

    try:
        from sqlalchemy.exc import SQLAlchemyError
    except ImportError:  # mlflow-skinny, which speaks to servers only
        return (MlflowException,)
    return (MlflowException, SQLAlchemyError)


@contextmanager
def _alone(path: Path | None) -> Iterator[None]:
    """Hold the lock on a store's schema: MLflow's own creation of it is no single transaction."""
    if path is None:
        yield
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _write(path: Path, value: Mapping[str, Json]) -> None:
    part = path.with_name(path.name + ".part")
    part.write_text(json.dumps(value), encoding="utf-8")
    part.chmod(0o600)
    part.replace(path)


def _say(text: str) -> None:
    sys.stderr.write(f"sgpu tracker: {text}\n")


if __name__ == "__main__":
    sys.exit(main())
