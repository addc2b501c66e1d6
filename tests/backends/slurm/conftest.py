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
from tests.ssh_server import SshServer

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
def login(slurm: SlurmCluster, tmp_path: Path, sbatch: LossySbatch) -> Iterator[SshServer]:
    """A login node of the cluster, which `ssh box` reaches."""
    path = f"{sbatch.folder}:{os.environ['PATH']}"
    server = SshServer(tmp_path / "ssh", PATH=path, **slurm.environ)
    yield server
    server.close()


@pytest.fixture
def laptop(slurm: SlurmCluster, login: SshServer, tmp_path: Path) -> Iterator[BackendBench]:
    """A project on a machine without Slurm, whose runs go to the cluster by its login node."""
    block = {"kind": "slurm", "login": "box", "storage": "~/sgpu"}
    one = {"type": "CPU", "gpus": 1, "backend": block, "mlflow": {"enabled": False}}
    programs = tmp_path / "laptop/bin"
    programs.mkdir(parents=True)
    for name in ("sbatch", "scontrol", "squeue", "scancel", "sacctmgr"):
        (programs / name).write_text("#!/bin/sh\nexit 99\n")
        (programs / name).chmod(0o755)
    path = f"{login.path}:{programs}:{os.environ['PATH']}"
    case = BackendCase(
        fields=one, pair={**one, "gpus": 2, "backend": {**block, "gpus_per_node": 1}}, many=one,
        secret=("", ""), missing="", environ={"PATH": path, "OF_THE_LAPTOP": "1"},
    )  # fmt: skip
    bench = BackendBench(case, tmp_path / "laptop")
    yield bench
    bench.close()
    _await_rest(slurm)


@pytest.fixture
def bench(slurm: SlurmCluster, benches: Benches) -> Iterator[BackendBench]:
    yield benches(slurm)
    _await_rest(slurm)


def _await_rest(slurm: SlurmCluster) -> None:
    with suppress(CalledProcessError):  # there are none any more
        slurm.command("scancel", "--user=root")
    until(lambda: slurm.leftovers() == [])
