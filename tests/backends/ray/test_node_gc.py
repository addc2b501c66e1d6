"""gc on the nodes of a cluster without a shared folder."""

import os
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from sgpu_decl.testing.ray_cluster import ray_cluster
from tests.backends.ray.cluster_run import ClusterRun
from tests.support import until

SIZE = 3_000_000


@pytest.mark.ray
@pytest.mark.expensive
def test_what_the_head_forgets_the_nodes_forget(ray_python: str, tmp_path: Path) -> None:
    with (
        TemporaryDirectory() as place,  # processes of Ray have sockets there, whose paths are short
        ray_cluster(nodes=2, cpus=8, python=ray_python, environ={"TMPDIR": place}) as cluster,
    ):
        own = Path(place) / f"sgpu-nodes-{os.getuid()}"
        run = ClusterRun(cluster, tmp_path, storage=False)
        run.bench.declare("value", args={"gate": str(run.bench.gate)})
        (run.bench.project / "data.bin").write_bytes(os.urandom(SIZE))
        run.bench.ran()
        until(lambda: not list(own.glob("*.lock")))  # no node program runs
        assert sum(path.stat().st_size for path in own.rglob("objects/code/*")) > SIZE

        freed = run.bench.done("gc", "-y", "--all", "--keep-last", "0", "-o", "json")

        assert [path for path in own.rglob("*") if path.is_file()] == [own / ".content"], freed
        run.bench.close()
