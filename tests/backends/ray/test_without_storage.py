"""Runs on clusters without a shared folder, when their processes are killed; see `test_kills`."""

import json
import os
import signal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from sgpu_decl.backends.ray.head.ray_files import _PIECE
from sgpu_decl.backends.remote.lease import LOCK
from sgpu_decl.testing.ray_cluster import RayCluster
from tests.backends.ray.cluster_run import ClusterRun, assert_gone, cause
from tests.backends.ray.depots import depot_processes
from tests.ray_versions import NEWEST_CLUSTER
from tests.support import until

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


@NEWEST_CLUSTER
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


@NEWEST_CLUSTER
def test_runs_with_large_arguments_are_launched_side_by_side(run: ClusterRun) -> None:
    (run.bench.project / "count.py").write_text("def letters(text):\n    return len(text)\n")
    common = {**run.fields(), "gpus": 1, "entrypoint": "count.py:letters"}
    lengths = {"one": 1_200_000, "two": 1_300_000, "three": 1_400_000}
    runs = {name: {**common, "args": {"text": "x" * size}} for name, size in lengths.items()}
    project = {"project": {"name": "counts"}, "runs": runs}
    (run.bench.project / "sgpu.yml").write_text(json.dumps(project))

    run.bench.launched()

    for name, size in lengths.items():
        assert run.bench.ended(name)["state"] == "succeeded"
        assert run.bench.results(name) == [(0, size)]
    assert run.waiting == []


@NEWEST_CLUSTER
def test_a_run_that_waits_for_gc_can_be_cancelled(run: ClusterRun) -> None:
    run.bench.declare("value", args={"gate": str(run.bench.gate)})
    # The driver sees it. The apply does not: no index has files of this kind.
    lock = run.shared / "objects/agent" / f"{LOCK}test.tmp"
    lock.parent.mkdir(parents=True, exist_ok=True)
    lock.touch()
    try:
        run.bench.launched()
        until(lambda: run.bench.status().get("waiting_for") == "the end of `sgpu gc`")
        run.bench.done("cancel", "hello")
        assert run.bench.ended()["state"] == "cancelled"
    finally:
        lock.unlink()
    assert not (run.bench.gate / "launches").exists()
    run.assert_frees_everything()


def declare_large(run: ClusterRun, pieces: int) -> None:
    """Have the run take so many pieces of content along."""
    run.bench.declare("value", args={"gate": str(run.bench.gate)})
    size = (pieces - 1) * _PIECE + 1_000_000
    (run.bench.project / "data.bin").write_bytes(os.urandom(size))


def assert_one_launch(run: ClusterRun) -> None:
    assert run.bench.ended()["state"] == "succeeded"
    assert run.bench.launches == 2  # one for each rank
    assert not [key for key in run.stored() if "sgpu-depot-" in key]
    run.assert_frees_everything()


def test_a_depot_that_is_killed_while_content_comes_is_replaced(run: ClusterRun) -> None:
    declare_large(run, pieces=3)
    uploads = run.shared / ".depot/uploads"

    def kill() -> None:
        until(lambda: uploads.exists() and any(uploads.glob("*.0")))
        (pid,) = depot_processes(run.cluster)
        os.kill(pid, signal.SIGKILL)

    with ThreadPoolExecutor(1) as pool:
        killed = pool.submit(kill)
        run.bench.launched()
        killed.result()

    assert_one_launch(run)


def test_a_client_that_is_killed_while_content_goes_is_followed_by_one_launch(
    run: ClusterRun,
) -> None:
    declare_large(run, pieces=2)
    step = "sgpu_decl.backends.ray.head.depot_client,DepotClient,send_piece,after,1"
    run.bench.killed(step, "apply", "-y", "--detach")

    run.bench.launched()

    assert_one_launch(run)
