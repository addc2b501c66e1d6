"""A real cluster for tests: what it declares, and that nothing is left of it."""

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

from sgpu_decl.agent.system.processes import command_line, descendants, start_time
from sgpu_decl.testing.ray_cluster import RayCluster, ray_cluster
from tests.ray_versions import OLDEST_RAY, interpreter_with
from tests.support import PATIENCE, until


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
def test_a_node_that_does_not_come_up_is_started_again(tmp_path: Path) -> None:
    python = tmp_path / "python"
    fails_once = f"cd {tmp_path}; mkdir failed 2>/dev/null && exit 1"
    python.write_text(f'#!/bin/sh\n{fails_once}; exec {shlex.quote(sys.executable)} "$@"\n')
    python.chmod(0o755)
    with ray_cluster(nodes=1, cpus=1, python=str(python)) as cluster:
        assert (tmp_path / "failed").is_dir()
        assert cluster.leftovers() == []


@pytest.mark.ray
@pytest.mark.expensive
def test_what_outlives_its_parents_is_ended_and_reported() -> None:
    def with_kills() -> None:
        with ray_cluster(nodes=1, cpus=1) as cluster:
            body = json.dumps({"entrypoint": "setsid sleep 86400 >&- 2>&- &"}).encode()
            request = Request(
                f"{cluster.url}/api/jobs/", body, {"Content-Type": "application/json"}
            )
            with urlopen(request, timeout=PATIENCE) as answer:
                job = json.load(answer)["submission_id"]
            until(lambda: cluster.get(f"/api/jobs/{job}")["status"] == "SUCCEEDED")
            for name in ("raylet", "gcs_server", "sleep"):
                pids.extend(cluster.processes(0, name))
            cluster.nodes[0].kill()
            cluster.nodes[0].wait(PATIENCE)

    pids: list[int] = []
    with pytest.raises(RuntimeError, match=r"started them: `sleep 86400` \(\d+\)$"):
        with_kills()
    assert len(pids) >= 3  # Ray has a `sleep` of its own beside a job
    assert [pid for pid in pids if start_time(pid) is not None] == []


@pytest.mark.ray
@pytest.mark.expensive
@pytest.mark.parametrize("loopback", [True, False])
def test_a_machine_without_a_network(*, loopback: bool) -> None:
    source = """
from sgpu_decl.testing.ray_cluster import ray_cluster
with ray_cluster(nodes=2, cpus=1) as cluster:
    print(cluster.address.partition(":")[0], cluster.leftovers())
"""
    words = ["ip", "link", "set", "lo", "up" if loopback else "down"]
    alone = ["unshare", "--map-root-user", "--net"]
    if subprocess.run([*alone, *words], capture_output=True, check=False).returncode:
        pytest.skip("this machine has no network namespaces of users")
    script = f'{" ".join(words)} && exec "$0" -c "$1"'
    answer = subprocess.run(
        [*alone, "sh", "-c", script, sys.executable, source],
        capture_output=True, text=True, timeout=PATIENCE, check=False,
    )  # fmt: skip
    if loopback:
        assert answer.stdout == "127.0.0.1 []\n", answer.stderr
    else:
        assert "not even that of the loopback interface" in answer.stderr


@pytest.mark.ray
@pytest.mark.expensive
def test_a_cluster_may_ask_for_a_token() -> None:
    with ray_cluster(nodes=1, cpus=1, token=True) as cluster:
        assert cluster.get("/api/authentication_mode")["authentication_mode"] == "token"
        with pytest.raises(HTTPError) as refused:
            urlopen(f"{cluster.url}/api/version", timeout=PATIENCE)
        refused.value.close()
        assert refused.value.code == 401


@pytest.mark.ray
@pytest.mark.expensive
def test_a_ray_without_tokens_is_not_started_as_if_it_asked_for_one() -> None:
    with (
        pytest.raises(ValueError, match="`token` needs Ray 2"),
        ray_cluster(nodes=1, cpus=1, token=True, python=interpreter_with(OLDEST_RAY)),
    ):
        raise AssertionError("there is a cluster")


@pytest.mark.ray
@pytest.mark.expensive
@pytest.mark.parametrize("whole", [True, False])
def test_a_whole_cluster_has_the_pages_of_the_dashboard(*, whole: bool, ray_python: str) -> None:
    with ray_cluster(nodes=1, cpus=1, whole=whole, python=ray_python) as cluster:
        try:
            cluster.get("/api/v0/cluster_events")
        except HTTPError as error:
            error.close()
            found = error.code
        else:
            found = 200
        assert found == (200 if whole else 404)
        lines = b"".join(command_line(pid) for pid in descendants(cluster.nodes[0].pid))
        assert (b"log_monitor.py" in lines) is whole
        assert (b"ray.util.client" in lines) is whole
        assert b"/monitor.py" in lines  # it tells the dashboard what is in use


def test_ports_are_given_back_although_a_node_does_not_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def kill_node(_cluster: RayCluster, number: int) -> None:
        raise RuntimeError(f"node {number} does not end")

    monkeypatch.setattr(RayCluster, "kill_node", kill_node)
    before = os.listdir("/proc/self/fd")
    with (
        pytest.raises(RuntimeError, match="node 0 does not end"),
        ray_cluster(nodes=1, python="/bin/false"),
    ):
        raise AssertionError("there is a cluster")
    assert os.listdir("/proc/self/fd") == before


def test_how_a_cluster_authenticates_is_said_in_one_place() -> None:
    with (
        pytest.raises(ValueError, match="`token` decides about RAY_AUTH_MODE"),
        ray_cluster(environ={"RAY_AUTH_MODE": "token"}),
    ):
        raise AssertionError("there is a cluster")


def test_a_storage_that_ray_does_not_have_is_named() -> None:
    with (
        pytest.raises(ValueError, match="one of memory, rocksdb, not 'rocks'"),
        ray_cluster(storage="rocks"),
    ):
        raise AssertionError("there is a cluster")
