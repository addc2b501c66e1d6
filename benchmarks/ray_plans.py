"""A plan for a Ray cluster beside the same plan for this machine, and the cluster's answers."""

import statistics
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from importlib.util import find_spec
from pathlib import Path

from measuring import Row, measure

from sgpu_decl.backends.ray.api.credentials import Credentials
from sgpu_decl.backends.ray.api.dashboard import Dashboard
from sgpu_decl.backends.ray.api.dashboard_address import DashboardAddress
from sgpu_decl.backends.ray.planning.cluster_nodes import read_cluster
from sgpu_decl.testing.ray_cluster import ray_cluster

__all__ = ["ray_plans"]

ROUNDS = 7
SGPU = str(Path(sys.executable).with_name("sgpu"))
RUN = "name: a\ngpus: 2\ntype: CPU\nentrypoint: train.py:main\nmlflow: {enabled: false}\n"


def ray_plans(scratch: Path) -> Iterator[Row]:
    """First plans: each file is new, so that none is remembered."""
    if find_spec("ray") is None:
        print("Ray is not installed: no figures about plans for it")
        return
    folder = scratch / "ray_plans"
    folder.mkdir()
    (folder / "train.py").write_text("def main():\n    pass\n")
    with ray_cluster(nodes=2, cpus=2) as cluster:
        blocks = {"local": "local", "ray": f"{{kind: ray, address: '{cluster.url}'}}"}
        seconds: dict[str, list[float]] = {name: [] for name in (*blocks, "answers")}
        for number in range(ROUNDS):
            for name, block in blocks.items():
                text = f"{RUN}description: {number}\nbackend: {block}\n"
                (folder / "run.yaml").write_text(text)
                fine = (0, 1)  # what cannot be applied is planned, too
                seconds[name].append(measure((SGPU, "plan"), folder, fine=fine).seconds)
            started = time.perf_counter()
            with closing(Dashboard(DashboardAddress(url=cluster.url), Credentials())) as dashboard:
                read_cluster(dashboard)
            seconds["answers"].append(time.perf_counter() - started)
    took = {name: statistics.median(items) for name, items in seconds.items()}
    yield Row(
        what="plan of one run on a Ray cluster, without the answers of the cluster",
        took=f"{took['ray'] * 1000:.0f} ms, answers {took['answers'] * 1000:.0f} ms",
        against=f"the same plan on this machine, {took['local'] * 1000:.0f} ms",
        ratio=(took["ray"] - took["answers"]) / took["local"],
        limit=1.25,
    )
