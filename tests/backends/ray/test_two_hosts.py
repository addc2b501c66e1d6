"""Runs on a cluster whose nodes are on two hosts: only their addresses lead from one to the other,
and each has a folder of Ray that the other does not see. The client is on the second host, and
reaches the dashboard of the first one."""

import os
import secrets
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from sgpu_decl.testing.ray_cluster import RayCluster
from tests.backends.ray.cluster_run import ClusterRun, assert_gone, authentication
from tests.network_hosts import connected_hosts, on_host
from tests.support import until

pytestmark = [pytest.mark.ray, pytest.mark.expensive]

MEET = """
import os, socket, time

def meet():
    \"\"\"The addresses of this rank and of the other one.\"\"\"
    master = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    if os.environ["RANK"] == "0":
        with socket.create_server(master) as server:
            peer, _ = server.accept()
    else:
        peer = None
        while peer is None:
            try:
                peer = socket.create_connection(master)
            except ConnectionRefusedError:  # the first rank is not there yet
                time.sleep(0.01)
    print("met", flush=True)
    return [peer.getsockname()[0], peer.getpeername()[0]]
"""


@pytest.fixture(scope="module")
def client_host() -> Iterator[tuple[RayCluster, str]]:
    """A cluster with the ports that Ray takes by itself, and the host of the client."""
    token = secrets.token_hex(16)
    folder = tempfile.TemporaryDirectory(prefix="sgpu-ray-", ignore_cleanup_errors=True)
    with connected_hosts() as (first, second, address), folder as scratch:
        cluster = RayCluster(
            python=sys.executable,
            url=f"http://{address}:8265",
            address=f"{address}:6379",
            folder=Path(scratch),
            token=token,
        )
        head = ["--head", f"--dashboard-host={address}", f"--node-ip-address={address}"]
        other = [f"--address={cluster.address}", "--node-ip-address=10.77.0.2"]
        try:
            for host, words in ((first, head), (second, other)):
                with on_host(host):
                    cluster.nodes.append(_started_node(cluster, words))
                    until(lambda: _has_joined(cluster))
            yield cluster, second
        finally:
            for number in range(len(cluster.nodes)):
                cluster.kill_node(number)


def _started_node(cluster: RayCluster, words: list[str]) -> "subprocess.Popen[bytes]":
    number = len(cluster.nodes)
    own = cluster.folder / str(number)
    own.mkdir()
    # All nodes have their folder at the same path, as on machines with a disk each.
    mounted = ["unshare", "--mount", "sh", "-c", 'mount --bind "$0" "$1" && shift && exec "$@"']
    with open(cluster.folder / f"{number}.log", "wb") as log:
        return subprocess.Popen(
            [*mounted, str(own), str(cluster.folder / "0"), cluster.python,
             "-m", "ray.scripts.scripts", "start", *words, "--block", "--num-cpus=4",
             "--object-store-memory=100000000", "--disable-usage-stats",
             f"--temp-dir={cluster.folder / '0'}"],
            env={**os.environ, **authentication(cluster), **cluster.mark(number)},
            stdout=log, stderr=log, start_new_session=True,
        )  # fmt: skip


def _has_joined(cluster: RayCluster) -> bool:
    log = cluster.folder / f"{len(cluster.nodes) - 1}.log"
    assert cluster.nodes[-1].poll() is None, log.read_text()
    try:
        return not cluster.leftovers()
    except (OSError, ValueError, KeyError, TypeError):  # the dashboard does not answer yet
        return False


@pytest.fixture
def run(client_host: tuple[RayCluster, str], tmp_path: Path) -> Iterator[ClusterRun]:
    cluster, host = client_host
    with on_host(host):
        made = ClusterRun(cluster, tmp_path, authentication(cluster), storage=False)
        yield made
        made.bench.close()


def test_ranks_on_two_hosts_meet_and_their_results_and_lines_come_back(run: ClusterRun) -> None:
    (run.bench.project / "meet.py").write_text(MEET)
    run.bench.declare("", **run.fields(), entrypoint="meet.py:meet", timeout="2m")

    assert run.bench.ran()["state"] == "succeeded"

    values = [value for _, value in run.bench.results()]
    assert values == [values[1][::-1], values[0][::-1]]
    assert {address for value in values for address in value} == {"10.77.0.1", "10.77.0.2"}
    assert run.bench.done("logs", "hello", "--rank", "all").out.count("met") == 2
    run.assert_frees_everything()


def test_a_cancel_leaves_nothing_on_either_host(run: ClusterRun) -> None:
    run.hold()
    processes = run.processes

    run.bench.done("cancel", "hello")

    assert run.bench.ended()["state"] == "cancelled"
    assert_gone(processes)
    run.assert_frees_everything()
