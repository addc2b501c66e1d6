"""Launches on a cluster without storage that has everything: what goes over its dashboard."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from sgpu_decl.testing.ray_cluster import RayCluster
from tests.backends.ray.cluster_run import ClusterRun
from tests.backends.ray.depots import depot_jobs, end_depots
from tests.backends.ray.lossy_proxy import LossyProxy, lossy_proxy
from tests.ray_versions import NEWEST_CLUSTER

pytestmark = pytest.mark.ray


@pytest.fixture
def proxy(cluster: RayCluster) -> Iterator[LossyProxy]:
    with lossy_proxy(cluster.url) as running:
        yield running


@pytest.fixture
def run(cluster: RayCluster, proxy: LossyProxy, tmp_path: Path) -> Iterator[ClusterRun]:
    made = ClusterRun(cluster, tmp_path, storage=False, address=proxy.url)
    yield made
    made.bench.close()


@pytest.mark.expensive
@NEWEST_CLUSTER
def test_a_cluster_that_has_everything_gets_a_package_and_a_job(
    cluster: RayCluster, run: ClusterRun, proxy: LossyProxy
) -> None:
    (run.bench.project / "data.bin").write_bytes(bytes(range(256)) * 20_000)
    run.bench.declare("value", args={"gate": str(run.bench.gate)})
    run.bench.ran()
    end_depots(cluster)
    before = len(depot_jobs(cluster))
    run.bench.declare("value", args={"gate": str(run.bench.gate), "n": 1})
    proxy.forget()

    run.bench.launched()

    requests = Counter(request.split()[0] for request in proxy.requests)
    assert (requests["PUT"], requests["POST"]) == (1, 1)
    assert proxy.sent < 1_000_000
    assert run.bench.ended()["state"] == "succeeded"
    assert run.bench.results() == [(0, {"rank": 0, "n": 1}), (1, {"rank": 1, "n": 1})]
    assert len(depot_jobs(cluster)) == before
    unpacked = cluster.folder.glob("0/*/runtime_resources/working_dir_files/*/launch.json")
    assert {path.parent.stat().st_mode & 0o777 for path in unpacked} == {0o700}
