"""A plan for a Ray cluster beside the same plan for this machine, and the cluster's answers."""

import statistics
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from importlib.util import find_spec
from pathlib import Path

from measuring import Row, measure

from sgpu_decl.backends.ray.api.dashboard import Dashboard
from sgpu_decl.backends.ray.api.dashboard_address import DashboardAddress
from sgpu_decl.backends.ray.api.dashboard_credentials import Credentials
from sgpu_decl.backends.ray.planning.cluster_nodes import read_cluster
from sgpu_decl.testing.ray_cluster import ray_cluster

__all__ = ["ray_plans"]

ROUNDS = 7
SGPU = str(Path(sys.executable).with_name("sgpu"))
RUN = "name: a\ngpus: 2\ntype: CPU\nentrypoint: train.py:main\nmlflow: {enabled: false}\n"


def ray_plans(scratch: Path) -> Iterator[Row]:
    """First plans, each of a new file, and then the same again."""
    if find_spec("ray") is None:
        print("Ray is not installed: no figures about plans for it")
        return
    folder = scratch / "ray_plans"
    folder.mkdir()
    (folder / "train.py").write_text("def main():\n    pass\n")
    seconds: dict[tuple[str, str], list[float]] = {}
    answers = []
    with ray_cluster(nodes=2, cpus=2) as cluster:
        ray = f"{{kind: ray, address: '{cluster.url}', storage: {folder}}}"
        for number in range(ROUNDS):
            for name, block in (("local", "local"), ("ray", ray)):
                (folder / "run.yaml").write_text(f"{RUN}description: {number}\nbackend: {block}\n")
                for kind in ("first", "unchanged"):
                    took = measure((SGPU, "plan"), folder).seconds
                    seconds.setdefault((name, kind), []).append(took)
            started = time.perf_counter()
            with closing(Dashboard(DashboardAddress(url=cluster.url), Credentials())) as dashboard:
                read_cluster(dashboard)
            answers.append(time.perf_counter() - started)
    answered = statistics.median(answers)
    for kind in ("first", "unchanged"):
        took, here = (statistics.median(seconds[name, kind]) for name in ("ray", "local"))
        yield Row(
            what=f"plan of one run on a Ray cluster, {kind}, without the answers of the cluster",
            took=f"{took * 1000:.0f} ms, answers {answered * 1000:.0f} ms",
            against=f"the same plan on this machine, {here * 1000:.0f} ms",
            ratio=(took - answered) / here,
            limit=1.25,
        )
