"""Launches on a cluster without storage that has everything: what goes over its dashboard, and from
its head to its nodes."""

import os
import re
import tempfile
from base64 import b64encode
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from sgpu_decl.testing.ray_cluster import RayCluster
from tests.backends.ray.cluster_run import ClusterRun
from tests.backends.ray.depots import depot_jobs, end_depots
from tests.backends.ray.lossy_proxy import LossyProxy, lossy_proxy
from tests.content.conftest import pack_wheel
from tests.ray_versions import NEWEST_CLUSTER

pytestmark = pytest.mark.ray

LARGE = 5_000_000
UNPACKED = "0/*/runtime_resources/working_dir_files/sgpu_*"
UNITS = {"B": 1, "kB": 1e3, "MB": 1e6}


@pytest.fixture
def proxy(cluster: RayCluster) -> Iterator[LossyProxy]:
    with lossy_proxy(cluster.url) as running:
        yield running


@pytest.fixture
def run(cluster: RayCluster, proxy: LossyProxy, tmp_path: Path) -> Iterator[ClusterRun]:
    made = ClusterRun(cluster, tmp_path, storage=False, address=proxy.url)
    yield made
    made.bench.close()


def sent_to_nodes(run: ClusterRun, attempt: int) -> float:
    """What the driver of an attempt has sent to its two nodes, in bytes."""
    token = run.bench.record("hello", attempt).token
    log = run.cluster.get(f"/api/jobs/{token}/logs")["logs"]
    (said,) = re.findall(r"^sgpu: sent (\S+) (\w+) to 2 nodes$", log, re.MULTILINE)
    return float(said[0]) * UNITS[said[1]]


@pytest.mark.expensive
@NEWEST_CLUSTER
def test_a_cluster_that_has_everything_gets_a_package_and_a_job(
    cluster: RayCluster, run: ClusterRun, proxy: LossyProxy, tmp_path: Path
) -> None:
    # Random bytes stay as many when they are packed.
    (run.bench.project / "data.bin").write_bytes(os.urandom(LARGE))
    payload = b64encode(os.urandom(LARGE)).decode()
    wheel = pack_wheel(tmp_path, "payload", "1.0", {"payload/__init__.py": f"DATA = '{payload}'\n"})
    with (run.bench.project / "train.py").open("a") as program:
        program.write("import payload\n")
    env = {"dependencies": [str(wheel)]}
    archives = run.shared / "objects/code"
    earlier = {path.name for path in archives.glob("*.tar.gz")}
    run.bench.declare("value", args={"gate": str(run.bench.gate)}, env=env)
    run.bench.ran()
    (code,) = {path.name for path in archives.glob("*.tar.gz")} - earlier
    on_nodes = Path(tempfile.gettempdir(), f"sgpu-nodes-{os.getuid()}/objects/code", code)
    written = on_nodes.stat().st_ino
    assert proxy.sent > 2 * LARGE
    assert sent_to_nodes(run, 1) >= 2 * (2 * LARGE)
    end_depots(cluster)
    before = len(depot_jobs(cluster))
    run.bench.declare("value", args={"gate": str(run.bench.gate), "n": 1}, env=env)
    proxy.forget()

    run.bench.launched()

    requests = Counter(request.split()[0] for request in proxy.requests)
    assert (requests["PUT"], requests["POST"]) == (1, 1)
    assert proxy.sent < 1_000_000
    assert run.bench.ended()["state"] == "succeeded"
    assert sent_to_nodes(run, 2) < 1_000_000
    assert on_nodes.stat().st_ino == written
    assert run.bench.results() == [(0, {"rank": 0, "n": 1}), (1, {"rank": 1, "n": 1})]
    assert len(depot_jobs(cluster)) == before
    unpacked = [path for path in cluster.folder.glob(UNPACKED) if path.is_dir()]
    assert {path.stat().st_mode & 0o777 for path in unpacked} == {0o700}
    assert [file for path in unpacked for file in path.iterdir()] == []
