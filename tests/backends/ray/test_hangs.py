"""Ranks that hang on a cluster without storage, as their user sees it."""

import sys
from pathlib import Path

import pytest

from sgpu_decl.testing.ray_cluster import RayCluster
from tests.backends.hanging_run import HangingRun
from tests.support import require

pytestmark = [pytest.mark.ray, pytest.mark.expensive, pytest.mark.torch]


def test_a_hang_is_seen_and_ends_the_run(cluster: RayCluster, tmp_path: Path) -> None:
    require("torch")
    folder = tmp_path / "project"
    folder.mkdir()
    backend = {
        "kind": "ray", "address": cluster.url, "ranks_per_node": 2, "python": sys.executable,
    }  # fmt: skip
    fields = {"gpus": 4, "type": "CPU", "backend": backend, "mlflow": {"enabled": False}}
    run = HangingRun(folder, fields)
    run.is_seen(4)
    run.is_ended(4)
