"""A launch on a warm Ray cluster of two nodes: beside Ray Train with the same function, and beside
a program that does what every such launch needs of Ray.

All of them are jobs of Ray's Jobs API, in turns. A launch begins when sgpu begins to apply its
plan, a job of the others when it is submitted. Workers of the cluster run at the niceness of ranks.
The line of the torch ranks comes once they have a process group, which Ray Train makes for its own.
"""

import json
import os
import shlex
import statistics
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeVar

from measuring import Row

from sgpu_decl.api import Location, Session
from sgpu_decl.testing.ray_cluster import RayCluster, ray_cluster

__all__ = ["ray_launches"]

ROUNDS = 3
GONE = 300.0  # seconds after which what is waited for does not come
RUN = """\
name: {name}
gpus: 4
type: CPU
entrypoint: {name}.py:main
args: {{out: {out}}}
until: always
mlflow: {{enabled: false}}
backend: {{kind: ray, address: '{url}', storage: {storage}, ranks_per_node: 2}}
"""
NOTE = """\
import json, os, time

def note(out):
    fields = open("/proc/self/stat").read().rpartition(")")[2].split()
    age = time.clock_gettime(time.CLOCK_BOOTTIME) - int(fields[19]) / os.sysconf("SC_CLK_TCK")
    now = time.time()
    print("the first line", flush=True)
    with open(out + ".part", "w") as file:
        json.dump({"line": now, "process": now - age}, file)
    os.rename(out + ".part", out)
"""
PLAIN = f"""{NOTE}
def main(out):
    if os.environ["RANK"] == "0":
        note(out)
"""
TORCH = f"""{NOTE}
import torch
from torch import distributed

def main(out):
    own = not distributed.is_initialized()
    if own:
        distributed.init_process_group("gloo")
    if distributed.get_rank() == 0:
        note(out)
    ones = torch.ones(1000)
    distributed.all_reduce(ones)
    assert ones.sum() == 4000
    if own:  # a group that is left alone sometimes aborts torch 2.13 at the end
        distributed.destroy_process_group()
"""
TRAIN = """\
import os, sys

from ray.train import RunConfig, ScalingConfig
from ray.train.torch import TorchConfig, TorchTrainer
from torch_ranks import main

TorchTrainer(
    lambda config: main(config["out"]),
    train_loop_config={"out": sys.argv[1]},
    scaling_config=ScalingConfig(num_workers=4, placement_strategy="SPREAD"),
    run_config=RunConfig(storage_path=os.path.dirname(sys.argv[1])),
    torch_config=TorchConfig(backend="gloo"),
).fit()
"""
BARE = f"""{NOTE}
import sys

import ray
from ray.util.placement_group import placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

class Node:
    def answer(self):
        pass

ray.init()
group = placement_group([{{"CPU": 2}}] * 2, strategy="STRICT_SPREAD")
group.wait()
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
ray.get([node.answer.remote() for node in nodes])
note(sys.argv[1])
"""


_Found = TypeVar("_Found")
_Other = TypeVar("_Other")


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """Seconds from the begin of a launch, in the order in which they come. `imported` is the first
    status that the driver writes; it writes `placed` when all actors have answered."""

    submitted: float
    driver: float
    imported: float
    placed: float
    rank: float
    line: float
    end: float


STEPS = {
    "submit": "submitted",
    "driver starts": "driver",
    "ray imported": "imported",
    "placed": "placed",
    "agents": "rank",
    "first line": "line",
}


def ray_launches(scratch: Path) -> Iterator[Row]:
    if find_spec("ray") is None:
        print("Ray is not installed: no figures about launches on it")
        return
    folder = scratch / "ray_launches"
    storage = folder / "storage"
    storage.mkdir(parents=True)
    for name, text in (("plain", PLAIN), ("torch_ranks", TORCH), ("by_train", TRAIN)):
        (folder / f"{name}.py").write_text(text)
    (folder / "bare.py").write_text(BARE)
    environ = {"RAY_worker_niceness": "0", "OMP_NUM_THREADS": "1"}
    with ray_cluster(nodes=2, cpus=2, environ=environ) as cluster:
        plain, bare = _in_turns(
            lambda: _launch("plain", cluster, folder),
            lambda: _job("bare", cluster, folder),
        )
        yield from _beside_ray(plain, [line for line, _ in bare])
        if find_spec("torch") is None or find_spec("pyarrow") is None:
            print("torch or what `ray[train]` needs is not installed: no figures beside Ray Train")
            return
        ranks, workers = _in_turns(
            lambda: _launch("torch_ranks", cluster, folder),
            lambda: _job("by_train", cluster, folder),
        )
        yield from _beside_train(ranks, workers)


def _in_turns(
    one: Callable[[], _Found], other: Callable[[], _Other]
) -> tuple[list[_Found], list[_Other]]:
    """What both gave, without the first time, which finds files unread and content not staged."""
    rounds = [(one(), other()) for _ in range(ROUNDS + 1)][1:]
    return [first for first, _ in rounds], [second for _, second in rounds]


def _beside_ray(plain: Sequence[Launch], bare: Sequence[float]) -> Iterator[Row]:
    own = statistics.median(run.submitted + run.line - run.placed for run in plain)
    yield Row(
        what="2 x 2 ranks on Ray: the steps of a launch that are not Ray's",
        took=f"{own:.2f} s",
        against=f"1 s, n={ROUNDS}; {_parts(plain)}",
        ratio=own,
        limit=1.0,
    )
    mine, theirs = statistics.median(run.line for run in plain), statistics.median(bare)
    yield Row(
        what="the same: the first line",
        took=f"{mine:.2f} s",
        against=f"a program of Ray with as many actors, {theirs:.2f} s",
        ratio=mine / theirs,
        limit=None,
    )


def _beside_train(ranks: Sequence[Launch], workers: Sequence[tuple[float, float]]) -> Iterator[Row]:
    parts = _parts(ranks)
    for what, mine, theirs, more in (
        ("first line", [run.line for run in ranks], [line for line, _ in workers], f"; {parts}"),
        ("whole", [run.end for run in ranks], [end for _, end in workers], ""),
    ):
        own, other = statistics.median(mine), statistics.median(theirs)
        yield Row(
            what=f"2 x 2 torch ranks on Ray: {what}",
            took=f"{own:.2f} s",
            against=f"TorchTrainer, {other:.2f} s, n={ROUNDS}{more}",
            ratio=own / other,
            limit=0.5,
        )


def _parts(runs: Sequence[Launch]) -> str:
    """The median of each step."""
    words, before = [], [0.0] * len(runs)
    for name, field in STEPS.items():
        at = [float(getattr(run, field)) for run in runs]
        took = statistics.median(now - then for now, then in zip(at, before, strict=True))
        words.append(f"{name} {took:.2f}")
        before = at
    return ", ".join(words)


def _launch(name: str, cluster: RayCluster, folder: Path) -> Launch:
    """Launch a run of four ranks, and wait for its end."""
    out, storage = folder / f"{name}.out", folder / "storage"
    out.unlink(missing_ok=True)
    file = folder / f"{name}.yaml"
    file.write_text(RUN.format(name=name, out=out, url=cluster.url, storage=storage))
    with Session.open(Location(file=file, project=folder)) as session:
        prepared = session.plan()
        known = set(storage.rglob("status.json"))
        begun = time.time()
        (ref,) = session.apply(prepared).launched
        token = session.runs.record(ref).token
        status = _until(lambda: next(iter(set(storage.rglob("status.json")) - known), None))
        imported = time.time()
        placed = _until(lambda: json.loads(status.read_text()).get("nodes") and time.time())
        job = cluster.get(f"/api/jobs/{token}")
        driver = _started(int(job["driver_info"]["pid"]))
        _until(out.exists)
        end = _end(cluster, token)
    noted = json.loads(out.read_text())
    return Launch(
        submitted=job["start_time"] / 1000 - begun,
        driver=driver - begun,
        imported=imported - begun,
        placed=placed - begun,
        rank=noted["process"] - begun,
        line=noted["line"] - begun,
        end=end - begun,
    )


def _job(name: str, cluster: RayCluster, folder: Path) -> tuple[float, float]:
    """Submit a program; return the seconds until its line and until its end."""
    out = folder / f"{name}.out"
    out.unlink(missing_ok=True)
    words = [sys.executable, str(folder / f"{name}.py"), str(out)]
    body = json.dumps({"entrypoint": shlex.join(words)}).encode()
    begun = time.time()
    request = urllib.request.Request(f"{cluster.url}/api/jobs/", data=body)
    request.add_header("Content-Type", "application/json")
    with urllib.request.urlopen(request, timeout=60) as answer:
        job = json.load(answer)["submission_id"]
    end = _end(cluster, job)
    return json.loads(out.read_text())["line"] - begun, end - begun


def _end(cluster: RayCluster, job: str) -> float:
    """Wait for the end of a job; return when that was, in seconds since 1970."""
    seen: dict[str, Any] = {}

    def ended() -> bool:
        seen.update(cluster.get(f"/api/jobs/{job}"))
        time.sleep(0.1)
        return seen["status"] not in ("PENDING", "RUNNING")

    _until(ended)
    if seen["status"] != "SUCCEEDED":
        logs = cluster.get(f"/api/jobs/{job}/logs")["logs"]
        sys.exit(f"a job of the benchmark ended as {seen['status']}:\n{logs[-3000:]}")
    return float(seen["end_time"]) / 1000


def _started(pid: int) -> float:
    """When a process was started, in seconds since 1970."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    since_boot = int(fields[19]) / os.sysconf("SC_CLK_TCK")
    return time.time() - (time.clock_gettime(time.CLOCK_BOOTTIME) - since_boot)


def _until(found: Callable[[], _Found | None]) -> _Found:
    deadline = time.monotonic() + GONE
    while not (item := found()):
        if time.monotonic() > deadline:
            sys.exit("a launch on a Ray cluster did not go on")
        time.sleep(0.005)
    return item
