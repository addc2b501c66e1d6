"""Runs on clusters of this machine."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from sgpu_decl.testing.ray_cluster import RayCluster, ray_cluster
from tests.backends.ray.cluster_run import ClusterRun


@pytest.fixture
def run(cluster: RayCluster, tmp_path: Path) -> Iterator[ClusterRun]:
    made = ClusterRun(cluster, tmp_path)
    yield made
    made.bench.close()


@pytest.fixture
def own_run(ray_python: str, tmp_path: Path) -> Iterator[ClusterRun]:
    """A run on a cluster of its own, which the test may destroy."""
    with ray_cluster(nodes=2, cpus=8, python=ray_python) as running:
        yield ClusterRun(running, tmp_path)
