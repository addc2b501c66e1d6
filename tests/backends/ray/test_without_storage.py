"""Runs on clusters without a shared folder, when their processes are killed; see `test_kills`."""

import os
import signal
from pathlib import Path

import pytest

from sgpu_decl.testing.ray_cluster import RayCluster
from tests.backends.ray.cluster_run import ClusterRun, assert_gone, cause

pytestmark = [pytest.mark.ray, pytest.mark.expensive]


@pytest.fixture
def run(cluster: RayCluster, tmp_path: Path) -> ClusterRun:
    return ClusterRun(cluster, tmp_path, storage=False)


def test_a_driver_that_is_killed_takes_all_with_it(run: ClusterRun) -> None:
    run.hold()
    processes = run.processes

    os.kill(run.driver, signal.SIGKILL)

    assert_gone(processes)
    assert cause(run.bench.ended())[:2] == ("lost", "supervisor_lost")
    run.assert_frees_everything()


def test_a_node_that_is_lost_is_replaced(run: ClusterRun) -> None:
    run.hold(retry={"max": 1, "on": ["infra"], "backoff": "0s"})
    first = run.processes
    driver = run.driver

    os.kill(run.actors[1], signal.SIGKILL)
    assert_gone({pid: started for pid, started in first.items() if pid != driver})
    run.bench.go()

    ended = run.bench.ended()
    assert (ended["state"], ended["restart"]) == ("succeeded", 1)
    assert run.bench.results() == [(0, {"rank": 0, "n": 0}), (1, {"rank": 1, "n": 0})]
    run.assert_frees_everything()


def test_a_second_run_of_the_same_code_sends_no_code(run: ClusterRun) -> None:
    run.bench.declare("value", args={"gate": str(run.bench.gate)})
    (run.bench.project / "data.bin").write_bytes(os.urandom(5_000_000))
    run.bench.ran()
    archives = list((run.shared / "objects/code").glob("*.tar.gz"))
    written = [path.stat().st_ino for path in archives]

    run.bench.declare("value", args={"gate": str(run.bench.gate), "n": 1})
    run.bench.ran()

    assert [path.stat().st_ino for path in archives] == written
    assert run.bench.results() == [(0, {"rank": 0, "n": 1}), (1, {"rank": 1, "n": 1})]
