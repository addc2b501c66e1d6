"""A real cluster for tests: what it declares, and that nothing is left of it."""

import os
import sys
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest

from sgpu_decl.agent.processes import start_time
from sgpu_decl.testing.ray_cluster import ray_cluster
from tests.support import PATIENCE


@pytest.mark.ray
@pytest.mark.expensive
def test_a_cluster_has_the_nodes_that_it_was_asked_for_and_ends_with_all_processes() -> None:
    with ray_cluster(nodes=2, cpus=3, gpus=4, gpu_type="H100", python=sys.executable) as cluster:
        rows = cluster.get("/api/v0/nodes?detail=1")["data"]["result"]["result"]
        found = [(row["resources_total"]["CPU"], row["resources_total"]["GPU"]) for row in rows]
        assert found == [(3, 4), (3, 4)]
        assert {row["labels"]["ray.io/accelerator-type"] for row in rows} == {"H100"}
        pids = [pid for number in (0, 1) for pid in cluster.processes(number, "raylet")]
        assert len(pids) == 2
        cluster.kill_node(1)
        assert start_time(pids[1]) is None
    assert start_time(pids[0]) is None
    assert not os.path.exists(cluster.folder)


@pytest.mark.ray
@pytest.mark.expensive
def test_a_cluster_may_ask_for_a_token() -> None:
    with ray_cluster(nodes=1, cpus=1, token=True) as cluster:
        assert cluster.get("/api/authentication_mode")["authentication_mode"] == "token"
        with pytest.raises(HTTPError) as refused:
            urlopen(f"{cluster.url}/api/version", timeout=PATIENCE)
        refused.value.close()
        assert refused.value.code == 401


def test_how_a_cluster_authenticates_is_said_in_one_place() -> None:
    with (
        pytest.raises(ValueError, match="`token` decides about RAY_AUTH_MODE"),
        ray_cluster(environ={"RAY_AUTH_MODE": "token"}),
    ):
        raise AssertionError("there is a cluster")
