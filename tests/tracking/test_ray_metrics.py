"""The metrics of a run's Ray cluster, in the MLflow run of the attempt."""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from sgpu_decl.agent.attempt.attempt_status import read_attempt
from tests.cli.conftest import Shell
from tests.rank.test_ray_metrics import endpoint
from tests.support import PATIENCE, require, until
from tests.tracking.conftest import Door

__all__ = ["endpoint"]

require("mlflow")
pytestmark = pytest.mark.mlflow

RUN = """
name: measured
gpus: 1
type: CPU
entrypoint: train.py:main
ray: {num_cpus: 1, object_store_memory: 80MB, metrics_interval: 1s}
"""
TRAIN = """
import os, time

def main():
    import ray
    from mlflow import MlflowClient

    ray.init()

    @ray.remote
    def task():
        time.sleep(3600)

    running = task.remote()
    while True:
        metrics = MlflowClient().get_run(os.environ["MLFLOW_RUN_ID"]).data.metrics
        if metrics.get("system/ray/tasks_running") and "system/ray/spilled_bytes" in metrics:
            return metrics
        time.sleep(0.1)
"""


BE_MONITOR = "from sgpu_decl.rank.ray_metrics import monitor_ray; monitor_ray()"


@pytest.fixture
def start_monitor() -> Iterator[Callable[..., "subprocess.Popen[str]"]]:
    """Start a monitor as the agent does: the request is a file without a name."""
    started: list[subprocess.Popen[str]] = []

    def start(*options: str, nodes: Mapping[str, str], **env: str) -> "subprocess.Popen[str]":
        with tempfile.TemporaryFile("w") as request:
            json.dump({"nodes": nodes, "interval": 0.05, "env": env}, request)
            request.flush()
            monitor = subprocess.Popen(
                [sys.executable, *options, "-c", BE_MONITOR],
                stdin=request, stderr=subprocess.PIPE, text=True,
                env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
            )  # fmt: skip
        started.append(monitor)
        return monitor

    yield start
    for monitor in started:
        monitor.kill()
        monitor.communicate()


@pytest.mark.expensive
def test_the_monitor_logs_again_once_the_server_is_back(
    door: Door, endpoint: str, start_monitor: Callable[..., "subprocess.Popen[str]"]
) -> None:
    run = door.ask("runs/create", {"experiment_id": "0", "run_name": "measured"})["run"]["info"]

    def step() -> int:
        """The last step of a metric, 0 if there is none."""
        metrics = door.ask("runs/get?run_id=" + run["run_id"])["run"]["data"]
        steps = {each["key"]: int(each["step"]) for each in metrics.get("metrics", ())}
        return steps.get("system/ray/node_7/cpu_count", 0)

    start_monitor(nodes={"7": endpoint}, MLFLOW_TRACKING_URI=door.uri, MLFLOW_RUN_ID=run["run_id"])
    until(step)
    door.close()
    last = step()
    door.open()
    until(lambda: step() > last)


def test_an_environment_without_mlflow_has_no_monitor(
    start_monitor: Callable[..., "subprocess.Popen[str]"],
) -> None:
    monitor = start_monitor("-S", nodes={"0": "127.0.0.1:1"}, MLFLOW_RUN_ID="run")
    assert monitor.wait(PATIENCE) == 0
    assert "this environment has no MLflow" in monitor.stderr.read()


@pytest.mark.ray
@pytest.mark.expensive
def test_a_driver_finds_what_its_nodes_measure_in_its_mlflow_run(project: Shell) -> None:
    project.write("train.py", TRAIN)
    project.write("run.yaml", RUN)
    done = project("apply", "-y")
    assert done.code == 0, done.out + done.err
    (result,) = project.here("results", "measured", "-o", "json").json["data"]["results"]
    metrics = result["value"]
    assert metrics["system/ray/tasks_running"] == 1.0
    assert metrics["system/ray/spilled_bytes"] == 0.0
    assert metrics["system/ray/cpu_count"] == metrics["system/ray/node_0/cpu_count"] > 0
    assert metrics["system/ray/object_store_available_bytes"] == 80_000_000
    attempt = read_attempt(project.folder / ".sgpu/default/runs/measured/1")
    assert attempt["state"] == "succeeded"
