"""The monitor of a cluster of several nodes: started by agent 0, ended with the driver."""

import json
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from sgpu_decl.agent.system.processes import variables
from sgpu_decl.rendering.spec import RaySpec, TrackerSpec
from tests.agent.ray.conftest import DRIVER, SMALL
from tests.support import require

require("mlflow")
pytestmark = [pytest.mark.ray, pytest.mark.mlflow, pytest.mark.expensive]

# As the tracker does it, with a run that is there already.
ANSWER = """
import os, sys
with open(os.environ["SGPU_RUN_DIR"] + "/mlflow.tmp", "w") as file:
    file.write(sys.argv[1])
os.rename(file.name, file.name.replace(".tmp", ".json"))
sys.stdin.read()
"""
WAITS = """
def main():
    import mlflow
    while True:
        metrics = mlflow.MlflowClient().get_run(os.environ["MLFLOW_RUN_ID"]).data.metrics
        if "system/ray/node_0/cpu_count" in metrics and "system/ray/node_1/cpu_count" in metrics:
            break
        time.sleep(0.1)
    leave("measured")
    while not os.path.exists(os.environ["SGPU_OUTPUT_DIR"] + "/leave"):
        time.sleep(0.01)
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_each_node_is_measured_until_the_driver_ends(
    make_nodes: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from mlflow import MlflowClient

    store = f"sqlite:///{tmp_path / 'mlflow.db'}"
    run = MlflowClient(store).create_run("0").info.run_id
    env = {"MLFLOW_TRACKING_URI": store, "MLFLOW_RUN_ID": run, "MLFLOW_EXPERIMENT_ID": "0"}
    answer = json.dumps({"env": env, "experiment": "Default"})
    tracker = TrackerSpec(argv=(sys.executable, "-c", ANSWER, answer))
    monkeypatch.setenv("OF_MLFLOW", "hidden words")
    nodes = make_nodes(
        DRIVER + WAITS,
        ray=RaySpec(**SMALL, metrics_interval=0.5),
        world_size=2,
        per="node",
        python=sys.executable,
        tracker=tracker,
        secrets={"OF_MLFLOW": "env:OF_MLFLOW"},
    ).all()
    output = nodes.attempt.folder / "output"
    nodes.attempt.until(lambda: (output / "measured").exists() or nodes.agents[0].poll())
    (started,) = nodes.events("ray_metrics_started")
    assert "hidden words" not in str(variables(started["pid"]))
    (output / "leave").touch()
    assert nodes.wait() == [137, 137]
    (ended,) = nodes.events("ray_metrics_ended")
    assert ended["exit_code"] == -signal.SIGKILL
    assert not (nodes.attempt.folder / "ray_metrics.log").read_text()
