"""The MLflow run of ranks on a Ray cluster: a real cluster and the real server. The older Ray lies
in an environment without MLflow."""

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sgpu_decl.agent.system.processes import command_line, related
from sgpu_decl.testing.contracts.backend_bench import BackendBench, BackendCase
from sgpu_decl.testing.file_search import files_with
from sgpu_decl.testing.ray_cluster import RayCluster
from tests.ray_versions import NEWEST_CLUSTER
from tests.support import until
from tests.tracking.conftest import Door

pytestmark = [pytest.mark.ray, pytest.mark.mlflow, pytest.mark.expensive]

TOKEN = "a-token-that-nobody-may-see"
HOLD = """\
names="MLFLOW_TRACKING_URI MLFLOW_RUN_ID MLFLOW_EXPERIMENT_ID MLFLOW_EXPERIMENT_NAME"
names="$names MLFLOW_TRACKING_TOKEN"
for name in $names; do printenv $name; done > {gate}/said-$RANK-$TORCHELASTIC_RESTART_COUNT
touch {gate}/up-$TORCHELASTIC_RESTART_COUNT-$RANK
while ! [ -e {gate}/go-0 ]; do sleep 0.1; done
"""
MEASURES = """\
import os, time

def main():
    import ray
    from mlflow import MlflowClient

    ray.init()
    wanted = {f"system/ray/node_{node}/object_store_available_bytes" for node in range(2)}
    while not wanted <= MlflowClient().get_run(os.environ["MLFLOW_RUN_ID"]).data.metrics.keys():
        time.sleep(0.1)
"""


@pytest.fixture
def empty_bench(cluster: RayCluster, door: Door, tmp_path: Path) -> BackendBench:
    """A project whose runs of two nodes are tracked by the server."""
    shared = tmp_path / "shared"
    shared.mkdir()
    block = {
        "kind": "ray", "address": cluster.url, "storage": str(shared), "ranks_per_node": 1,
        "resources_per_rank": {"CPU": 3},
    }  # fmt: skip
    mlflow = {"tracking_uri": door.uri, "run_name": tmp_path.name}
    pair = {"type": "CPU", "gpus": 2, "backend": block, "mlflow": mlflow}
    environ = {"MLFLOW_TRACKING_TOKEN": TOKEN, "MLFLOW_EXPERIMENT_NAME": "ray"}
    case = BackendCase(
        fields=pair, pair=pair, many=pair, secret=("", ""), missing="", environ=environ
    )
    return BackendBench(case, tmp_path)


@pytest.fixture
def bench(empty_bench: BackendBench) -> Iterator[BackendBench]:
    """A run of two nodes that waits for `go`."""
    bench = empty_bench
    retry = {"max": 1, "on": ["infra"], "backoff": "100ms"}
    command = HOLD.format(gate=bench.gate)
    run = {"name": "hello", "command": command, "grace": "500ms", "retry": retry, **bench.case.pair}
    (bench.project / "run.yaml").write_text(json.dumps(run))
    bench.launched()
    bench.up(ranks=2)
    yield bench
    bench.close()


def run_of(door: Door, bench: BackendBench) -> dict[str, Any]:
    """The one MLflow run of the attempt."""
    (run,) = door.runs(bench.project.parent.name)
    return run


def running(cluster: RayCluster, words: bytes) -> list[int]:
    """The processes of the cluster that have these words in their command line."""
    return [
        pid for node in cluster.nodes for pid in related(node.pid) if words in command_line(pid)
    ]


def test_ranks_have_the_run_of_their_attempt_and_its_token_lies_nowhere(
    cluster: RayCluster, bench: BackendBench, door: Door
) -> None:
    run = run_of(door, bench)
    info = run["info"]
    lines = [door.uri, info["run_id"], info["experiment_id"], "ray", TOKEN]
    for rank in range(2):
        assert (bench.gate / f"said-{rank}-0").read_text().splitlines() == lines
        (bench.gate / f"said-{rank}-0").unlink()
    assert info["status"] == "RUNNING"
    link = until(lambda: bench.status()["links"].get("mlflow"))
    assert (link["run_id"], link["experiment"]) == (info["run_id"], "ray")
    assert files_with(TOKEN.encode(), bench.project.parent, cluster.folder) == []
    assert TOKEN not in json.dumps(cluster.get("/api/jobs/"))
    (tracker,) = running(cluster, b"/tracker.zip")
    assert TOKEN.encode() not in Path(f"/proc/{tracker}/environ").read_bytes()

    bench.go()

    assert bench.ended()["state"] == "succeeded"
    run = run_of(door, bench)
    assert run["info"]["status"] == "FINISHED"
    tags = {item["key"]: item["value"] for item in run["data"]["tags"]}
    assert (tags["sgpu.address"], tags["sgpu.state"]) == ("run.hello", "succeeded")
    assert bench.status()["links"]["mlflow"]["run_id"] == info["run_id"]


@NEWEST_CLUSTER
def test_an_attempt_that_goes_on_elsewhere_keeps_its_run(
    cluster: RayCluster, bench: BackendBench, door: Door
) -> None:
    before = run_of(door, bench)["info"]["run_id"]
    os.kill(running(cluster, b"\0node\0--run\0")[-1], signal.SIGKILL)
    bench.up(1, ranks=2)

    run = run_of(door, bench)["info"]
    assert (run["run_id"], run["status"]) == (before, "RUNNING")
    assert (bench.gate / "said-0-1").read_text().splitlines()[1] == before
    bench.go()

    assert bench.ended()["state"] == "succeeded"
    assert run_of(door, bench)["info"]["status"] == "FINISHED"


@NEWEST_CLUSTER
def test_the_metrics_of_a_cluster_inside_are_in_the_run_of_the_attempt(
    empty_bench: BackendBench, door: Door
) -> None:
    bench = empty_bench
    (bench.project / "train.py").write_text(MEASURES)
    ray = {"object_store_memory": "80MB", "metrics_interval": "1s"}
    bench.declare("main", like="pair", ray=ray)

    assert bench.ran()["state"] == "succeeded"

    run = run_of(door, bench)
    logged = {item["key"]: item["value"] for item in run["data"]["metrics"]}
    assert logged["system/ray/cpu_count"] > 0
    for node in range(2):
        assert logged[f"system/ray/node_{node}/object_store_available_bytes"] == 80_000_000
    assert run["info"]["status"] == "FINISHED"


def test_a_run_whose_driver_was_killed_is_failed_and_has_no_tracker_left(
    cluster: RayCluster, bench: BackendBench, door: Door
) -> None:
    until(lambda: bench.status()["links"].get("mlflow"))
    lineage = bench.record("hello").lineage
    (job,) = (
        job
        for job in cluster.get("/api/jobs/")
        if (job["metadata"] or {}).get("sgpu.lineage") == lineage
    )

    os.kill(int(job["driver_info"]["pid"]), signal.SIGKILL)

    assert bench.ended()["state"] == "lost"
    until(lambda: not running(cluster, b"/tracker.zip"))
    bench.done("status")
    assert run_of(door, bench)["info"]["status"] == "FAILED"
