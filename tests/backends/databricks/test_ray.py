"""Runs with a Ray cluster of their own on a workspace: launched by a job, and started again."""

from pathlib import Path

import pytest

from sgpu_decl.model.attempt import AttemptState
from tests.backends.databricks.bench import DatabricksBench
from tests.backends.databricks.test_job_runs import Shop, shop

__all__ = ["shop"]

pytestmark = [pytest.mark.ray, pytest.mark.expensive]

# Nodes here have the packages of this interpreter, which a plan cannot know; and no GPU.
THERE = "{base: gpu-6, variables: {PYTHONPATH: /nonexistent, MARK: MARK}}"
CLUSTER = "{num_gpus: 0, num_cpus: 2, object_store_memory: 80MB}"
CODE = """\
import os, signal

def main(n):
    import ray

    ray.init()

    @ray.remote(max_retries=0)
    def kill_raylet():
        os.kill(int(os.environ["RAY_RAYLET_PID"]), signal.SIGKILL)

    if not os.path.exists(os.environ["MARK"]):
        open(os.environ["MARK"], "w").close()
        ray.get(kill_raylet.remote())
        signal.pause()
    return [n, ray.cluster_resources()["CPU"]]
"""


ON_EACH_NODE = """\
def main(n):
    import place
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    ray.init()
    there = [row["NodeID"] for row in ray.nodes() if row["Alive"]]
    ask = ray.remote(place.found)
    on = [NodeAffinitySchedulingStrategy(node, soft=False) for node in there]
    found = ray.get([ask.options(scheduling_strategy=one).remote(n) for one in on])
    return [ray.cluster_resources()["CPU"], found, place.found(n)]
"""
PLACE = """\
import os

def found(n):
    \"\"\"The number, and what a library would take a rank by.\"\"\"
    return [n, [os.environ.get(name) for name in ("RANK", "WORLD_SIZE")]]
"""


def with_ray(folder: Path, file: str, mark: Path, nodes: int = 1) -> None:
    """Have the run of that file start a cluster; its first driver kills the raylet, unless the
    mark is there."""
    text = (folder / file).read_text()
    block = next(line for line in text.splitlines() if line.strip().startswith("env:"))
    indent = block[: block.index("env:")]
    there = f"{indent}env: {THERE.replace('MARK: MARK', f'MARK: {mark}')}"
    text = text.replace(block, f"{there}\n{indent}ray: {CLUSTER}").replace(
        "gpus: 2", f"gpus: {nodes}"
    )
    (folder / file).write_text(text)
    (folder / "train.py").write_text(CODE)


def test_a_lost_raylet_is_followed_by_a_new_cluster(bench: DatabricksBench, tmp_path: Path) -> None:
    bench.declare(more="retry: {max: 1}\n")
    with_ray(bench.project, "run.yaml", tmp_path / "mark")
    run = bench.run()
    assert (run.status.state, run.status.restart) == (AttemptState.SUCCEEDED, 1)
    assert [result["value"] for result in run.results] == [[3, 2.0]]


def test_a_command_may_be_the_driver(bench: DatabricksBench, tmp_path: Path) -> None:
    with_ray(bench.project, "run.yaml", tmp_path / "mark")
    bench.declare("args: {n: 3}\n", "")
    bench.declare("entrypoint: train.py:main", "command: [python, train.py]")
    bench.code("import ray\nray.init()\nprint('CPUs:', ray.cluster_resources()['CPU'])\n")
    run = bench.run()
    assert run.status.state is AttemptState.SUCCEEDED
    assert "CPUs: 2.0" in run.texts()


def test_the_nodes_of_a_task_make_one_cluster(bench: DatabricksBench, tmp_path: Path) -> None:
    with_ray(bench.project, "run.yaml", tmp_path / "mark", nodes=2)
    bench.code(ON_EACH_NODE)
    (bench.project / "place.py").write_text(PLACE)

    run = bench.run()

    assert (run.status.state, len(run.status.ranks)) == (AttemptState.SUCCEEDED, 1)
    no_rank = [3, [None, None]]
    assert [one["value"] for one in run.results] == [[4.0, [no_rank] * 2, no_rank]]


def test_a_job_launches_its_driver_with_a_cluster(shop: Shop, tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    mark.touch()
    with_ray(shop.project, "sgpu.yml", mark)
    shop.apply()
    assert shop.start() == "SUCCESS"
    assert shop.returned(0) == [[3, 2.0]]
    assert shop.start() == "SUCCESS"
    assert shop.returned(1) == [[3, 2.0]]
