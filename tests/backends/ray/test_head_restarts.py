"""A head that is started again: with another session, and with all that it knew before."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from sgpu_decl.backends.ray import ray_attempts
from sgpu_decl.backends.ray.clusters import Clusters
from sgpu_decl.backends.ray.head.head_place import HeadPlace
from sgpu_decl.backends.ray.head.head_reader import ROOT
from sgpu_decl.testing.ray_cluster import ray_cluster
from tests.backends.ray.cluster_run import ClusterRun, assert_gone, cause
from tests.backends.ray.depots import start_depot

pytestmark = [pytest.mark.ray, pytest.mark.expensive]

NewRun = Callable[..., ClusterRun]

# What the first agent says, where its node is the one that lives on.
BY_AGENT = ("failed", "node_lost")


@pytest.fixture
def new_run(tmp_path: Path) -> Iterator[NewRun]:
    """Makes a run on a cluster of its own."""
    with ExitStack() as stack:

        def made(**cluster: Any) -> ClusterRun:
            return ClusterRun(stack.enter_context(ray_cluster(nodes=2, **cluster)), tmp_path)

        yield made


def test_a_head_that_is_started_again_has_lost_the_run_and_another_one_can_follow(
    new_run: NewRun, ray_python: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ray_attempts, "_SILENT", 12.0)  # of 120 s
    run = new_run(python=ray_python)
    run.hold()
    processes = run.processes
    run.cluster.kill_node(0)
    assert_gone(processes)

    run.cluster.restart_node(0)

    status = run.bench.status()
    if status["state"] == "running":
        assert "another session of Ray answers" in status["unavailable"]
    assert cause(run.bench.ended())[:2] in (("lost", "supervisor_lost"), BY_AGENT)
    run.cluster.kill_node(1)
    run.cluster.restart_node(1)
    (change,) = run.bench.done("plan", "-o", "json").data["changes"]
    assert change["action"] == "create"
    assert change["reason"] in ("previous_lost", "previous_failed")
    assert run.jobs == []  # nothing was submitted again
    assert run.stored() == []
    run.assert_is_freed()


def test_a_head_that_kept_what_it_knew_says_that_the_driver_is_gone(new_run: NewRun) -> None:
    """Ray 2.49 keeps that in a Redis server alone."""
    run = new_run(storage="rocksdb")
    run.hold()
    processes = run.processes
    before = run.cluster.get("/api/version")["session_name"]
    depot = start_depot(run.cluster)
    run.cluster.kill_node(0)
    assert_gone(processes)

    run.cluster.restart_node(0)

    assert run.cluster.get("/api/version")["session_name"] == before
    assert cause(run.bench.ended())[:2] in (("lost", "node_lost"), BY_AGENT)
    run.assert_frees_everything()

    # So it does of a depot, and another one is started.
    assert run.cluster.get(f"/api/jobs/{depot}")["status"] == "RUNNING"
    files = HeadPlace(Clusters().at(run.cluster.url))
    files.make_folder(f"{ROOT}/folder")
    files.put(f"{ROOT}/folder/file", b"content")
    assert files.get(f"{ROOT}/folder/file") == b"content"
