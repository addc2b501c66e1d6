"""The tracker process: makes an attempt's MLflow run, waits for the end, and sets its status.

The supervisor of node 0 starts it with a pipe as its standard input, before the ranks: on this
machine with the interpreter of sgpu, elsewhere with that of the run, from an archive. It writes
`mlflow.json` (the run's id and the variables that ranks need, or an error), blocks until that pipe
ends, and then gives the run the attempt's true status. If its store does not take the run, the
local one is used; a node has none, so there is no run then. MLflow is imported only for system
metrics, and for stores that only its client knows.

An attempt has one MLflow run, also if another node goes on with it after a loss: if `SGPU_RESTART`
is not 0, the tracker looks for the run that an earlier one made.
"""

from __future__ import annotations

import os
import select
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NoReturn

from sgpu_decl.agent.attempt.attempt_files import SPEC, TRACKED, TRACKER, read_json
from sgpu_decl.agent.attempt.attempt_status import read_attempt
from sgpu_decl.agent.attempt.metrics_file import METRICS, read_metrics
from sgpu_decl.agent.system.secrets import receive_variables
from sgpu_decl.tracking.mlflow_status import outcome
from sgpu_decl.tracking.open_runs import OpenRun, close_runs
from sgpu_decl.tracking.store_location import artifact_folder, default_uri
from sgpu_decl.tracking.stores.choice import open_tracking_store
from sgpu_decl.tracking.stores.store_protocol import CreatedRun, RunStore, StoreError
from sgpu_decl.tracking.tracker_files import write_record
from sgpu_decl.tracking.tracking_request import FILE, TrackingRequest, from_json

TYPE_CHECKING = False
if TYPE_CHECKING:
    from sgpu_decl.model.jsonable import Json

_SHORT = 2.0  # seconds: a shorter run needs no samples, which MLflow takes every 10 s
_RESTART = "SGPU_RESTART"  # how often the attempt had started again before this tracker
_INTERVAL = "MLFLOW_SYSTEM_METRICS_SAMPLING_INTERVAL"


def main() -> int:
    """Track the attempt that `SGPU_RUN_DIR` names; return the exit code."""
    receive_variables()
    folder = Path(os.environ["SGPU_RUN_DIR"])
    os.umask(0o077)
    try:
        request = from_json((folder / FILE).read_text(encoding="utf-8"))
        home = Path(request.home or folder)
        with OpenRun.begin(home, request.token, folder) as entry:
            return _track(request, folder, entry)
    except (OSError, TypeError, ValueError) as error:
        return _give_up(folder, f"{type(error).__name__}: {error}")


def _track(request: TrackingRequest, folder: Path, entry: OpenRun) -> int:
    # MLflow's client takes relative places from the working folder.
    os.chdir(request.home or folder)
    try:
        run, request, store, reason = _make(request, folder)
    except StoreError as error:
        entry.forget()
        lost = "; what ranks log is lost with their nodes" if request.home is None else ""
        return _give_up(folder, f"{error}{lost}")
    entry.note_created(run.run_id, request.tracking_uri)
    instead: dict[str, Json] = {}
    if reason is not None:
        instead = {"instead_of": {"tracking_uri": reason[0], "reason": reason[1]}}
        _say(f"{reason[1]}: the local store takes its place")
    write_record(folder, TRACKED, {**_answer(request, run), **instead})
    try:
        store.record(run.run_id, request)
    except StoreError as error:
        _say(f"the parameters are not recorded: {error}")
    metrics = _wait_for_end(request, run.run_id)
    end = outcome(_truth(folder))
    try:
        _log_metrics(store, run, folder, end.ended_at)
    except StoreError as error:
        _say(f"the metrics of `{METRICS}` are not recorded: {error}")
    try:
        store.finish(run.run_id, end)
    except StoreError as error:
        _say(f"the MLflow run {run.run_id} is still open: {error}")
        entry.note_end(end)
        write_record(folder, TRACKED, {**_answer(request, run), **instead, "open": str(error)})
        return 1
    entry.forget()
    if metrics is not None:
        metrics.finish()
    if request.home is not None:
        close_runs(Path(request.home), environ=os.environ, by_client=True)
    return 0


def _make(
    request: TrackingRequest, folder: Path
) -> tuple[CreatedRun, TrackingRequest, RunStore, tuple[str, str] | None]:
    """Make the run, in the local store if its own does not take it.

    Returns the run, the request as carried out, its store, and, if that is the local one instead,
    the URI of the other store with the reason.

    Raises:
        StoreError: neither takes it.
    """

    def say(what: str) -> None:
        write_record(folder, TRACKER, {"waiting_for": what})

    try:
        return (*_create(request, say), None)
    except StoreError as error:
        if request.home is None:
            raise
        local = default_uri(Path(request.home))
        if request.tracking_uri == local:
            raise
        reason = (request.tracking_uri, str(error))
    artifacts = str(artifact_folder(Path(request.home)))
    here = replace(request, tracking_uri=local, artifacts=artifacts)
    return (*_create(here, say), reason)


def _create(
    request: TrackingRequest, say: Callable[[str], None]
) -> tuple[CreatedRun, TrackingRequest, RunStore]:
    store = open_tracking_store(request.tracking_uri, environ=os.environ, say=say)
    earlier = store.resume(request) if os.environ.get(_RESTART, "0") != "0" else None
    return earlier or store.create(request), request, store


def _answer(request: TrackingRequest, run: CreatedRun) -> dict[str, Json]:
    env = {
        "MLFLOW_TRACKING_URI": request.tracking_uri,
        "MLFLOW_RUN_ID": run.run_id,
        "MLFLOW_EXPERIMENT_ID": run.experiment_id,
    }
    if request.names_experiment:
        env["MLFLOW_EXPERIMENT_NAME"] = request.experiment
    return {
        "run_id": run.run_id,
        "experiment_id": run.experiment_id,
        "tracking_uri": request.tracking_uri,
        "experiment": request.experiment,
        "env": env,
    }


def _log_metrics(store: RunStore, run: CreatedRun, folder: Path, ended_at: int | None) -> None:
    """Record what ranks left in `metrics.json`, but for metrics that they logged themselves.

    Raises:
        StoreError: the store does not take them.
    """
    spec = read_json(os.fspath(folder), SPEC) or {}
    rows = read_metrics(os.path.join(folder, spec.get("output_dir", "output"))).rows
    if not rows:
        return
    logged = store.last_metrics({run.run_id: run.experiment_id}).get(run.run_id, {})
    moment = ended_at or time.time_ns() // 1_000_000
    values = [
        (name, value, number if step is None else step)
        for number, (step, row) in enumerate(rows)
        for name, value in row.items()
        if name not in logged
    ]
    if values:
        store.log(run.run_id, values, moment)


def _give_up(folder: Path, reason: str) -> int:
    """Record that there is no run: ranks wait for this file."""
    write_record(folder, TRACKED, {"error": reason})
    _say(f"no MLflow run: {reason}")
    return 1


def _truth(folder: Path) -> dict[str, object]:
    """Read the attempt once it has ended; a guardian that is still stopping ranks is awaited."""
    deadline = time.monotonic() + 15
    while True:
        truth = read_attempt(folder)
        if truth["state"] != "stopping" or time.monotonic() > deadline:
            return truth
        time.sleep(0.05)


def _wait_for_end(request: TrackingRequest, run_id: str) -> _SystemMetrics | None:
    """Wait for the attempt's end. If psutil is installed and the run is not short, import MLflow
    and record meanwhile how much CPU, memory and GPUs are used."""
    short = min(_SHORT, _interval(os.environ))
    measured = request.system_metrics and find_spec("psutil") and find_spec("mlflow")
    if not measured or _has_ended(short):
        _has_ended(None)
        return None
    metrics = _SystemMetrics(request, run_id)
    metrics.start()
    _has_ended(None)
    return metrics


def _has_ended(seconds: float | None) -> bool:
    """Wait up to `seconds` for the attempt's end, which closes stdin; say whether it has ended."""
    ready, _, _ = select.select([0], [], [], seconds)
    return bool(ready) and not os.read(0, 4096)


def _interval(environ: Mapping[str, str]) -> float:
    try:
        return float(environ.get(_INTERVAL) or _SHORT)
    except ValueError:
        return _SHORT


class _SystemMetrics(threading.Thread):
    """Imports MLflow and records system metrics, beside the main thread."""

    def __init__(self, request: TrackingRequest, run_id: str) -> None:
        super().__init__(daemon=True)
        self._request = request
        self._run_id = run_id
        self._monitor: Any = None

    def run(self) -> None:
        from sgpu_decl.tracking.stores.client import PATIENCE

        for name, value in PATIENCE.items():
            os.environ.setdefault(name, value)
        # By name, as MLflow does not say the types of its methods.
        module = import_module("mlflow.system_metrics.system_metrics_monitor")
        monitor = module.SystemMetricsMonitor(self._run_id, tracking_uri=self._request.tracking_uri)
        monitor.start()
        self._monitor = monitor

    def finish(self) -> None:
        if self._monitor is not None:
            self._monitor.finish()


def _say(text: str) -> None:
    sys.stderr.write(f"sgpu tracker: {text}\n")


def run() -> NoReturn:
    """End this process once the attempt is tracked to its end."""
    status = main()
    sys.stderr.flush()
    os._exit(status)  # a thread that is still importing MLflow has nothing to lose


if __name__ == "__main__":
    run()
