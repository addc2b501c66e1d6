"""Programs on a Ray cluster that is there, by `sgpu apply` and by `ray job submit`: a driver, and
2 x 2 torch ranks beside a program that starts torchrun on each node, as people write it.

Both commands send the code and wait for the end, in turns. Workers of the cluster run at the
niceness of ranks. The line of the torch ranks comes once they have a process group.
"""

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path

from measuring import Row
from ray_launches import NOTE, TORCH

from sgpu_decl.testing.ray_cluster import RayCluster, ray_cluster

__all__ = ["ray_programs"]

ROUNDS = 5
RUN = """\
name: {name}
gpus: {gpus}
type: CPU
entrypoint: {entry}
args: {args}
until: always
mlflow: {{enabled: false}}
backend: {{kind: ray, address: '{url}', storage: {storage}{more}}}
"""
DRIVER = f"""{NOTE}
import sys

note(sys.argv[1])

import ray

ray.init()
double = ray.remote(lambda number: 2 * number)
print(sum(ray.get([double.remote(number) for number in range(10)])))
"""
RANKS = f"""\
import torch
from torch import distributed

{TORCH}
if __name__ == "__main__":
    import sys

    main(sys.argv[1])
"""
WRAPPER = """\
import socket, subprocess, sys

import ray
from ray.util.placement_group import placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

class Node:
    def address(self):
        with socket.socket() as free:
            free.bind(("", 0))
            return ray.util.get_node_ip_address(), free.getsockname()[1]

    def run(self, address, port, number, out):
        words = [sys.executable, "-m", "torch.distributed.run", "--nnodes=2", "--nproc-per-node=2",
                 f"--node-rank={number}", f"--master-addr={address}", f"--master-port={port}",
                 "ranks.py", out]
        subprocess.run(words, check=True)

ray.init()
group = placement_group([{"CPU": 2}] * 2, strategy="STRICT_SPREAD")
nodes = [
    ray.remote(Node)
    .options(
        num_cpus=2,
        scheduling_strategy=PlacementGroupSchedulingStrategy(
            group, placement_group_bundle_index=number
        ),
    )
    .remote()
    for number in range(2)
]
address, port = ray.get(nodes[0].address.remote())
ray.get([node.run.remote(address, port, number, sys.argv[1]) for number, node in enumerate(nodes)])
"""


def ray_programs(scratch: Path) -> Iterator[Row]:
    if find_spec("ray") is None:
        print("Ray is not installed: no figures about programs on it")
        return
    folder = scratch / "ray_programs"
    (folder / "storage").mkdir(parents=True)
    environ = {"RAY_worker_niceness": "0", "OMP_NUM_THREADS": "1"}
    with ray_cluster(nodes=2, cpus=2, whole=True, environ=environ) as cluster:
        files = {"driver.py": DRIVER}
        run = {"gpus": 0, "entry": "driver.py", "more": "}\nray: {cluster: existing"}
        yield from _rows(
            "a driver on a Ray cluster", 1.1, _both("driver", files, run, cluster, folder)
        )
        if find_spec("torch") is None:
            print("torch is not installed: no figures about ranks beside torchrun on Ray")
            return
        files = {"ranks.py": RANKS, "wrapper.py": WRAPPER}
        run = {"gpus": 4, "entry": "ranks.py", "more": ", ranks_per_node: 2"}
        both = _both("wrapper", files, run, cluster, folder)
        yield from _rows("2 x 2 torch ranks on Ray, beside torchrun", 1.0, both)


Times = tuple[float, float]
"""Seconds until the first line, and until the command has ended."""


def _both(
    name: str,
    files: dict[str, str],
    run: dict[str, object],
    cluster: RayCluster,
    folder: Path,
) -> tuple[list[Times], list[Times]]:
    """The times of `sgpu apply` and of `ray job submit`, without the first time, which finds files
    unread and content not staged."""
    project = folder / name
    project.mkdir()
    for file, text in files.items():
        (project / file).write_text(text)
    out, storage = folder / f"{name}.out", folder / "storage"
    fields = {"name": name, "args": json.dumps([str(out)]), "url": cluster.url, "storage": storage}
    (project / "run.yaml").write_text(RUN.format(**run, **fields))
    programs = Path(sys.executable).parent
    mine = [programs / "sgpu", "apply", "-y"]
    theirs = [programs / "ray", "job", "submit", "--address", cluster.url, "--working-dir", "."]
    theirs += ["--", sys.executable, f"{name}.py", out]
    times = [(_took(mine, project, out), _took(theirs, project, out)) for _ in range(ROUNDS + 1)]
    return [one for one, _ in times[1:]], [other for _, other in times[1:]]


def _took(words: Sequence[object], project: Path, out: Path) -> Times:
    out.unlink(missing_ok=True)
    environ = {**os.environ, "RAY_AUTH_MODE": "disabled"}
    begun = time.time()
    done = subprocess.run(
        list(map(str, words)), cwd=project, env=environ, capture_output=True, text=True, check=False
    )
    took = time.time() - begun
    if done.returncode:
        sys.exit(f"a program of the benchmark failed:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return float(json.loads(out.read_text())["line"]) - begun, took


def _rows(what: str, limit: float, both: tuple[list[Times], list[Times]]) -> Iterator[Row]:
    for number, when in enumerate(("first line", "whole")):
        mine, theirs = (statistics.median(times[number] for times in one) for one in both)
        yield Row(
            what=f"{what}: {when}",
            took=f"{mine:.2f} s",
            against=f"`ray job submit`, {theirs:.2f} s, n={ROUNDS}",
            ratio=mine / theirs,
            limit=limit,
        )
