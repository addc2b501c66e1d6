import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from subprocess import CalledProcessError
from typing import Any

import pytest

from sgpu_decl.testing.contracts.backend_bench import BackendBench, BackendCase, until
from sgpu_decl.testing.slurm_cluster import SlurmCluster
from tests.lossy_sbatch import LossySbatch

Benches = Callable[[SlurmCluster], BackendBench]


@pytest.fixture
def sbatch(tmp_path: Path) -> LossySbatch:
    return LossySbatch(tmp_path / "bin")


@pytest.fixture
def benches(tmp_path: Path, sbatch: LossySbatch) -> Iterator[Benches]:
    """`benches(cluster)` is a project whose runs go to a cluster, one rank on each node."""
    made: list[BackendBench] = []

    def bench(cluster: SlurmCluster) -> BackendBench:
        storage = tmp_path / "storage"
        storage.mkdir(exist_ok=True)
        block: dict[str, Any] = {"kind": "slurm", "storage": str(storage)}
        one = {"type": "CPU", "gpus": 1, "backend": block, "mlflow": {"enabled": False}}
        pair = {**one, "gpus": 2, "backend": {**block, "gpus_per_node": 1}}
        environ = {"PATH": f"{sbatch.folder}:{os.environ['PATH']}", **cluster.environ}
        case = BackendCase(
            fields=one, pair=pair, many=one, secret=("", ""), missing="", environ=environ,
        )  # fmt: skip
        made.append(BackendBench(case, tmp_path / f"bench-{len(made)}"))
        return made[-1]

    yield bench
    for one in made:
        one.close()


@pytest.fixture
def bench(slurm: SlurmCluster, benches: Benches) -> Iterator[BackendBench]:
    yield benches(slurm)
    with suppress(CalledProcessError):  # there are none any more
        slurm.command("scancel", "--user=root")
    until(lambda: slurm.leftovers() == [])
