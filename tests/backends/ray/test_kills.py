"""Nothing of a run stays on any node, whatever is killed, and its state says so: on real clusters,
whose nodes are processes of this machine."""

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from sgpu_decl.agent.processes import related, start_time
from sgpu_decl.testing.contracts.backend_bench import BackendBench, BackendCase
from sgpu_decl.testing.ray_cluster import RayCluster, ray_cluster
from tests.ray_versions import interpreter_with
from tests.support import until

pytestmark = [pytest.mark.ray, pytest.mark.expensive]

_GONE = 15.0  # seconds until nothing may be left: 10, and some for a busy machine

Processes = dict[int, int]  # start times by pid


@pytest.fixture(params=["newest", "2.49.1"])
def cluster(request: pytest.FixtureRequest) -> Iterator[RayCluster]:
    with ray_cluster(nodes=2, cpus=4, python=interpreter_with(request.param)) as running:
        yield running


@pytest.fixture
def bench(cluster: RayCluster, tmp_path: Path) -> BackendBench:
    shared = tmp_path / "shared"
    shared.mkdir()
    block = {
        "kind": "ray", "address": cluster.url, "storage": str(shared), "ranks_per_node": 1,
        "resources_per_rank": {"CPU": 3},
    }  # fmt: skip
    pair = {"type": "CPU", "gpus": 2, "backend": block, "mlflow": {"enabled": False}}
    case = BackendCase(fields=pair, pair=pair, many=pair, secret=("", ""), missing="")
    bench = BackendBench(case, tmp_path)
    bench.declare("hold", args={"gate": str(bench.gate)})
    bench.launched()
    bench.up(ranks=2)
    return bench


def titled(cluster: RayCluster, title: str) -> list[int]:
    """The processes of the cluster whose command line begins so, by node."""
    return [
        pid
        for node in cluster.nodes
        for pid in related(node.pid)
        if Path(f"/proc/{pid}/cmdline").read_bytes().startswith(title.encode())
    ]


def node_programs(cluster: RayCluster) -> list[int]:
    return [
        pid
        for actor in titled(cluster, "ray::NodeActor")
        for pid in related(actor)
        if b"\0node\0--run\0" in Path(f"/proc/{pid}/cmdline").read_bytes()
    ]


def of_the_run(cluster: RayCluster) -> Processes:
    """All processes that the actors started."""
    pids = [pid for actor in titled(cluster, "ray::NodeActor") for pid in related(actor)]
    return {pid: started for pid in pids if (started := start_time(pid)) is not None}


def assert_gone(processes: Processes) -> None:
    deadline = time.monotonic() + _GONE
    while left := [pid for pid, started in processes.items() if start_time(pid) == started]:
        assert time.monotonic() < deadline, [
            Path(f"/proc/{pid}/cmdline").read_bytes() for pid in left
        ]
        time.sleep(0.1)


def driver_of(cluster: RayCluster) -> int:
    (job,) = cluster.get("/api/jobs/")[:1] or [None]
    return int(job["driver_info"]["pid"])


def test_a_driver_that_is_killed_takes_all_with_it(
    cluster: RayCluster, bench: BackendBench
) -> None:
    processes = of_the_run(cluster)
    assert len(processes) >= 8  # a node program, guardian, supervisor and rank on each node

    os.kill(driver_of(cluster), signal.SIGKILL)

    assert_gone(processes)
    run = bench.ended()
    assert (run["state"], run["first_cause"]["class"]) == ("lost", "supervisor_lost")
    (change,) = bench.done("plan", "-o", "json").data["changes"]
    assert (change["action"], change["reason"]) == ("create", "previous_lost")


@pytest.mark.parametrize("node", [0, 1])
@pytest.mark.parametrize("what", ["actor", "program"])
def test_a_node_whose_processes_are_killed_ends_the_run(
    cluster: RayCluster, bench: BackendBench, what: str, node: int
) -> None:
    processes = of_the_run(cluster)
    victims = titled(cluster, "ray::NodeActor") if what == "actor" else node_programs(cluster)

    os.kill(victims[node], signal.SIGKILL)

    assert_gone(processes)
    run = bench.ended()
    assert run["state"] in ("failed", "lost", "cancelled")
    assert run["first_cause"]["class"] in ("node_lost", "killed", "supervisor_lost")


def test_a_raylet_that_is_killed_ends_the_run(cluster: RayCluster, bench: BackendBench) -> None:
    processes = of_the_run(cluster)
    (raylet,) = cluster.processes(1, "raylet")

    os.kill(raylet, signal.SIGKILL)

    assert_gone(processes)
    run = bench.ended()
    assert (run["state"], run["first_cause"]["class"]) == ("failed", "node_lost")


def test_a_head_that_is_killed_leaves_nothing_and_the_attempt_as_it_was(
    cluster: RayCluster, bench: BackendBench
) -> None:
    processes = of_the_run(cluster)

    cluster.kill_node(0)

    assert_gone(processes)
    run = bench.status()
    assert run["state"] == "running"
    assert "does not answer" in run["unavailable"]


def test_a_job_that_is_stopped_at_the_cluster_is_cancelled(
    cluster: RayCluster, bench: BackendBench
) -> None:
    import urllib.request

    processes = of_the_run(cluster)
    (job,) = cluster.get("/api/jobs/")
    stop = f"{cluster.url}/api/jobs/{job['submission_id']}/stop"

    urllib.request.urlopen(urllib.request.Request(stop, method="POST")).close()

    assert_gone(processes)
    assert bench.ended()["state"] == "cancelled"


def test_folders_of_node_programs_that_were_killed_are_deleted_by_the_next_run(
    cluster: RayCluster, bench: BackendBench
) -> None:
    above = Path(f"/tmp/sgpu-nodes-{os.getuid()}")
    programs = node_programs(cluster)
    words = [Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0") for pid in programs]
    runs = [Path(os.fsdecode(item[item.index(b"--run") + 1])) for item in words]
    assert all(run.parent == above for run in runs)
    processes = of_the_run(cluster)
    os.kill(driver_of(cluster), signal.SIGKILL)
    assert_gone(processes)
    assert bench.ended()["state"] == "lost"
    bench.go()

    assert bench.ran()["state"] == "succeeded"

    until(lambda: not any(run.exists() for run in runs))
