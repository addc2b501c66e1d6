"""Runs whose program is the driver of a Ray cluster that is there, on real clusters."""

import os
import signal
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from sgpu_decl.agent.system.processes import start_time
from sgpu_decl.testing.ray_cluster import RayCluster, ray_cluster
from tests.backends.ray.cluster_run import ClusterRun, assert_gone, authentication, cause
from tests.ray_versions import NEWEST_CLUSTER
from tests.support import until

pytestmark = pytest.mark.ray

BESIDE = """\
import os

def seen(number):
    return [number, os.environ["LR"], os.environ.get("WORD"), os.environ.get("RANK")]
"""
PROGRAM = """\
import os, pathlib, time

import ray
from beside import seen

def main():
    ray.init()
    task = ray.remote(scheduling_strategy="SPREAD")(seen)
    pathlib.Path(os.environ["SGPU_OUTPUT_DIR"], "left").touch()
    print("the word is", os.environ["WORD"], flush=True)
    table = ray.util.placement_group_table().values()  # those of earlier runs stay there, removed
    groups = [group for group in table if group["state"] != "REMOVED"]
    return [ray.get([task.remote(number) for number in range(2)]), len(groups),
            ray.get_gpu_ids(), os.environ.get("RANK"), os.environ.get("OMP_NUM_THREADS")]

@ray.remote(num_cpus=1)
class Worker:
    def pid(self):
        return os.getpid()

def hold(gate):
    ray.init()
    workers = [Worker.options(scheduling_strategy="SPREAD").remote() for _ in range(2)]
    pids = [*ray.get([worker.pid.remote() for worker in workers]), os.getpid()]
    start = len(list(pathlib.Path(gate).glob("pids-*")))
    path = pathlib.Path(gate, f"pids-{start}")
    path.with_suffix(".part").write_text(" ".join(map(str, pids)))
    path.with_suffix(".part").rename(path)
    while not pathlib.Path(gate, "go").exists():
        time.sleep(0.01)
    return start
"""
HOLDER = """\
import sys

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

ray.init(address=sys.argv[1], log_to_driver=False)

@ray.remote(num_cpus=3)
class Holder:
    def hold(self):
        pass

(head,) = [node for node in ray.nodes() if "node:__internal_head__" in node["Resources"]]
there = NodeAffinitySchedulingStrategy(head["NodeID"], soft=False)
holder = Holder.options(scheduling_strategy=there).remote()
ray.get(holder.hold.remote())
print("ready", flush=True)
sys.stdin.read()
"""
"""It has 3 CPUs of the head while it runs."""
TRAINERS = """\
import pathlib

def data(folder):
    import ray

    ray.init()
    return ray.data.range(100).map(lambda row: {"id": 2 * row["id"]}).sum("id")

def fit(config):
    from ray import tune

    tune.report({"loss": (config["x"] - 2) ** 2})

def tuned(folder):
    import ray
    from ray import tune

    ray.init()
    tuner = tune.Tuner(
        fit,
        param_space={"x": tune.grid_search([1, 2])},
        tune_config=tune.TuneConfig(metric="loss", mode="min"),
        run_config=tune.RunConfig(storage_path=folder, verbose=0),
    )
    return tuner.fit().get_best_result().config["x"]

def train(config):
    import ray.train
    import torch
    from torch import distributed

    total = torch.ones(1)
    distributed.all_reduce(total)
    if distributed.get_rank() == 0:
        pathlib.Path(config["folder"], "world").write_text(str(int(total)))
    ray.train.report({"world": int(total)})

def trained(folder):
    import ray
    from ray.train import RunConfig, ScalingConfig
    from ray.train.torch import TorchConfig, TorchTrainer

    ray.init()
    trainer = TorchTrainer(
        train,
        train_loop_config={"folder": folder},
        scaling_config=ScalingConfig(num_workers=2),
        run_config=RunConfig(storage_path=folder),
        torch_config=TorchConfig(backend="gloo"),
    )
    trainer.fit()
    return int(pathlib.Path(folder, "world").read_text())
"""


@pytest.fixture(params=[True, False], ids=["storage", "head"])
def run(request: pytest.FixtureRequest, cluster: RayCluster, tmp_path: Path) -> ClusterRun:
    return made(cluster, tmp_path, storage=request.param)


def made(cluster: RayCluster, folder: Path, *, storage: bool = True) -> ClusterRun:
    found = ClusterRun(cluster, folder, {"THE_WORD": "hush-hush"}, storage=storage)
    for name, text in (("program", PROGRAM), ("beside", BESIDE), ("trainers", TRAINERS)):
        (found.bench.project / f"{name}.py").write_text(text)
    return found


def declare(run: ClusterRun, entrypoint: str, **fields: Any) -> None:
    """The run of a driver that is on the cluster."""
    fields = {
        **run.fields(ranks_per_node=None),
        "gpus": 0,
        "entrypoint": entrypoint,
        "ray": {"cluster": "existing"},
        "env": {"variables": {"LR": "0.1"}},
        **fields,
    }
    run.bench.declare("", **fields)


def held(run: ClusterRun, start: int = 0) -> dict[int, int]:
    """The start times of the processes of the driver and of its actors, by pid, once they are
    there."""
    path = run.bench.gate / f"pids-{start}"
    until(path.exists)
    pids = map(int, path.read_text().split())
    return {pid: started for pid in pids if (started := start_time(pid)) is not None}


def test_the_driver_has_its_code_and_variables_on_every_node(run: ClusterRun) -> None:
    secrets = {"secrets": {"WORD": "env:THE_WORD"}}
    declare(run, "program.py:main", env={"variables": {"LR": "0.1"}, **secrets})
    plan = run.bench.done("plan", "-o", "json").data
    (driver,) = [check for check in plan["checks"] if check["id"] == "ray_driver"]
    assert "2 nodes, 16 CPUs and 8 H100" in driver["summary"]
    assert "secrets_of_driver" in [check["id"] for check in plan["checks"]]

    assert run.bench.ran()["state"] == "succeeded"

    ((rank, value),) = run.bench.results()
    of_tasks = [[number, "0.1", None, None] for number in range(2)]
    assert (rank, value) == (0, [of_tasks, 0, [], None, None])
    run.bench.done("fetch", "hello")
    log = run.bench.done("logs", "hello").out
    assert "the word is" in log
    assert "hush-hush" not in log
    assert run.bench.done("plan", "-o", "json").data["summary"]["no_op"] == 1
    run.assert_frees_everything()


@pytest.mark.expensive
def test_a_driver_that_asks_for_resources_is_where_they_are(run: ClusterRun) -> None:
    resources = {"cluster": "existing", "num_cpus": 2, "num_gpus": 1}
    secrets = {"secrets": {"WORD": "env:THE_WORD"}}
    env = {"variables": {"LR": "0.1"}, **secrets}
    declare(run, "program.py:main", ray=resources, env=env, type="H100")

    assert run.bench.ran()["state"] == "succeeded"

    ((_, value),) = run.bench.results()
    assert value[0] == [[number, "0.1", None, None] for number in range(2)]
    run.assert_frees_everything()


@NEWEST_CLUSTER
def test_a_driver_that_never_fits_is_refused(run: ClusterRun) -> None:
    declare(run, "program.py:main", ray={"cluster": "existing", "num_cpus": 9})
    answer = run.bench("plan", "-o", "json")
    (finding,) = [check for check in answer.data["checks"] if check["severity"] == "error"]
    assert finding["id"] == "never_fits"
    assert finding["summary"].startswith("needs 1 node with 9 CPUs; ")


@pytest.mark.expensive
def test_a_driver_whose_node_is_lost_starts_again_on_another(
    ray_python: str, tmp_path: Path
) -> None:
    with ray_cluster(nodes=2, cpus=4, python=ray_python) as cluster:
        run = made(cluster, tmp_path)
        with subprocess.Popen(
            [ray_python, "-c", HOLDER, cluster.address],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            env={**os.environ, **authentication(cluster)},
        ) as holder:  # fmt: skip
            assert holder.stdout is not None
            assert holder.stdout.readline() == b"ready\n"
            declare(
                run, "program.py:hold", args={"gate": str(run.bench.gate)},
                retry={"max": 1, "on": ["infra"], "backoff": "0s"},
                ray={"cluster": "existing", "num_cpus": 2},
            )  # fmt: skip
            run.bench.launched()
            processes = held(run)
            assert [*processes][-1] in cluster._processes(1)

            cluster.kill_node(1)
            until(lambda: len(cluster._alive()) == 1)  # until then Ray starts actors there
            holder.kill()

        held(run, 1)
        (run.bench.gate / "go").touch()
        ended = run.bench.ended()
        assert (ended["state"], ended["restart"]) == ("succeeded", 1)
        assert_gone(processes)


@pytest.mark.expensive
def test_a_cancel_ends_the_driver_and_its_actors(run: ClusterRun) -> None:
    declare(run, "program.py:hold", args={"gate": str(run.bench.gate)})
    run.bench.launched()
    processes = held(run)
    assert len(processes) == 3

    run.bench.done("cancel", "hello")

    assert_gone(processes)
    assert run.bench.status()["state"] == "cancelled"
    run.assert_frees_everything()


@pytest.mark.expensive
def test_a_job_that_is_killed_leaves_nothing(run: ClusterRun) -> None:
    declare(run, "program.py:hold", args={"gate": str(run.bench.gate)})
    run.bench.launched()
    processes = held(run)

    os.kill(run.driver, signal.SIGKILL)

    assert_gone(processes)
    assert cause(run.bench.ended())[:2] == ("lost", "supervisor_lost")
    run.assert_frees_everything()


@pytest.mark.expensive
def test_a_job_that_is_stopped_at_the_cluster_leaves_nothing(run: ClusterRun) -> None:
    declare(run, "program.py:hold", args={"gate": str(run.bench.gate)})
    run.bench.launched()
    processes = held(run)
    (job,) = run.jobs
    subprocess.run(
        [run.cluster.python, "-m", "ray.scripts.scripts", "job", "stop", job["submission_id"],
         "--address", run.cluster.url],
        check=True, capture_output=True, env={**os.environ, **authentication(run.cluster)},
    )  # fmt: skip

    assert_gone(processes)
    assert run.bench.ended()["state"] == "cancelled"


@pytest.mark.expensive
def test_a_driver_that_is_killed_starts_again_with_new_actors(run: ClusterRun) -> None:
    retry = {"max": 1, "on": ["infra"], "backoff": "0s"}
    declare(run, "program.py:hold", args={"gate": str(run.bench.gate)}, retry=retry)
    run.bench.launched()
    processes = held(run)
    *_, driver = processes

    os.kill(driver, signal.SIGKILL)

    assert_gone(processes)
    held(run, 1)
    (run.bench.gate / "go").touch()
    ended = run.bench.ended()
    assert (ended["state"], ended["restart"]) == ("succeeded", 1)
    assert run.bench.results() == [(0, 1)]


@pytest.mark.expensive
@NEWEST_CLUSTER
@pytest.mark.parametrize(("function", "value"), [("data", 9900), ("tuned", 2), ("trained", 2)])
def test_a_program_of_a_library_of_ray_runs_there_and_here(
    cluster: RayCluster, tmp_path: Path, function: str, value: int
) -> None:
    run = made(cluster, tmp_path)
    folder = {"folder": str(tmp_path / "results")}
    elsewhere: Mapping[str, Any] = {"gpus": 1, "ray": {"num_cpus": 4}, "backend": {"kind": "local"}}
    for fields in ({}, elsewhere):
        declare(run, f"trainers.py:{function}", args=folder, **fields)
        assert run.bench.ran()["state"] == "succeeded", run.bench.done("logs", "hello").out
        assert run.bench.results() == [(0, value)]
