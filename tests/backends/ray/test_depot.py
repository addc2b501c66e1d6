"""The depot of a cluster without storage, with real Ray: kills, keys, what it keeps."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from uuid import uuid4

import pytest

from sgpu_decl.backends.ray.clusters import Clusters
from sgpu_decl.backends.ray.head.head_place import HeadPlace
from sgpu_decl.backends.ray.head.head_reader import ROOT
from sgpu_decl.places.file_place import file_size
from sgpu_decl.testing.ray_cluster import RayCluster
from tests.backends.ray.depots import depot_jobs, depot_processes, end_depots, start_depot
from tests.ray_versions import NEWEST_CLUSTER
from tests.sampling import SAMPLE
from tests.support import until

LARGE = (1 << 30) if SAMPLE == "all" else (200 << 20)
KEYS = """
import sys, ray
from ray.experimental.internal_kv import _internal_kv_list
ray.init(address=sys.argv[1], log_to_driver=False)
print([key for key in _internal_kv_list("gcs://") if b"sgpu-depot-" in key])
"""
CLIENT = """
import os, sys
from pathlib import Path
from sgpu_decl.backends.ray.clusters import Clusters
from sgpu_decl.backends.ray.head.head_place import HeadPlace

address, folder, file, *dies = sys.argv[1:]

def sent(count):
    if dies and count:
        os.kill(os.getpid(), 9)

files = HeadPlace(Clusters().at(address))
files.make_folder(folder)
files.put(folder + "/large", Path(file), sent)
"""


@pytest.fixture
def large(tmp_path: Path) -> Path:
    path = tmp_path / "large"
    path.write_bytes(os.urandom(1 << 20) * (LARGE >> 20))
    return path


def keys_left(cluster: RayCluster) -> str:
    command = [cluster.python, "-c", KEYS, cluster.address]
    variables = {**os.environ, "RAY_AUTH_MODE": "disabled"}
    found = subprocess.run(command, env=variables, capture_output=True, text=True, check=True)
    return found.stdout.splitlines()[-1]


@pytest.mark.ray
@pytest.mark.expensive
def test_a_large_file_survives_the_depot_that_took_half_of_it(
    cluster: RayCluster, large: Path, tmp_path: Path
) -> None:
    files = HeadPlace(Clusters().at(cluster.url))
    folder = f"{ROOT}/{uuid4().hex}"
    files.make_folder(folder)
    (pid,) = depot_processes(cluster)
    sent: list[int] = []

    def kill_once(count: int) -> None:
        if count > LARGE // 2 and not sent:
            sent.append(count)
            os.kill(pid, signal.SIGKILL)

    files.put(f"{folder}/large", large, kill_once)

    assert sent
    assert file_size(files, f"{folder}/large") == LARGE
    files.fetch(f"{folder}/large", tmp_path / "here")
    assert (tmp_path / "here").read_bytes() == large.read_bytes()
    assert len(depot_processes(cluster)) == 1
    assert keys_left(cluster) == "[]"


@pytest.mark.ray
@pytest.mark.expensive
def test_a_client_that_dies_while_it_sends_leaves_no_key(cluster: RayCluster, large: Path) -> None:
    folder = f"{ROOT}/{uuid4().hex}"
    command = [sys.executable, "-c", CLIENT, cluster.url, folder, str(large), "dies"]
    assert subprocess.run(command, check=False).returncode == -signal.SIGKILL

    deadline = time.monotonic() + 20
    while keys_left(cluster) != "[]":
        assert time.monotonic() < deadline

    assert HeadPlace(Clusters().at(cluster.url)).list(folder) == ()


@pytest.mark.ray
@pytest.mark.expensive
def test_clients_that_come_at_once_share_one_depot(cluster: RayCluster) -> None:
    folder = f"{ROOT}/{uuid4().hex}"
    clients = [
        subprocess.Popen([sys.executable, "-c", CLIENT, cluster.url, f"{folder}/{n}", __file__])
        for n in (0, 1, 1)
    ]
    assert [client.wait() for client in clients] == [0, 0, 0]
    files = HeadPlace(Clusters().at(cluster.url))
    for number in range(2):
        assert files.get(f"{folder}/{number}/large") == Path(__file__).read_bytes()
    deadline = time.monotonic() + 20
    while len(depot_processes(cluster)) != 1:
        assert time.monotonic() < deadline


@NEWEST_CLUSTER
@pytest.mark.ray
@pytest.mark.expensive
def test_a_depot_without_work_keeps_what_was_used_last_and_ends(cluster: RayCluster) -> None:
    end_depots(cluster)
    depot = start_depot(cluster, idle=10, most=1_500_000)
    files = HeadPlace(Clusters().at(cluster.url))
    folder = f"objects/{uuid4().hex}"
    files.make_folder(f"{ROOT}/{folder}")
    for name in ("old", "new"):
        files.put(f"{ROOT}/{folder}/{name}", bytes(1_000_000))
    session = cluster.get("/api/version")["session_name"]
    on_head = cluster.folder / "0" / session / "logs" / "sgpu"
    os.utime(on_head / folder / "old", (time.time() - 7200,) * 2)

    until(lambda: not depot_processes(cluster))

    (ended,) = [job for job in depot_jobs(cluster) if job["submission_id"] == depot]
    assert ended["status"] == "SUCCEEDED"
    assert [item.name for item in files.list(f"{ROOT}/{folder}")] == ["new"]
    for path in (on_head, on_head / folder, on_head / folder / "new"):
        assert path.stat().st_mode & 0o077 == 0  # nobody else may read it
