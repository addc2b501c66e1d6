"""The cells of a matrix, each with a Ray cluster of its own."""

from typing import Any

import pytest

pytestmark = [pytest.mark.ray, pytest.mark.expensive]

RUN = """\
name: sweep
gpus: 1
type: CPU
entrypoint: train.py:main
matrix: {cpus: [1, 2], seed: [7]}
max_parallel: 2
ray: {num_cpus: '${matrix.cpus}', object_store_memory: 80MB}
mlflow: {enabled: false}
"""
CODE = """\
def main(cpus, seed):
    import ray

    ray.init()
    return [cpus, ray.cluster_resources()["CPU"], len(ray.nodes())]
"""


def test_each_cell_has_the_cluster_that_its_axes_say(sgpu: Any) -> None:
    sgpu.write("run.yaml", RUN)
    sgpu.write("train.py", CODE)
    sizes = {
        check["address"]: check["summary"].partition(", object")[0]
        for check in sgpu.checks(id="ray_cluster")
    }
    assert sizes == {
        'run.sweep["cpus=1,seed=7"]': "Ray cluster: 1 node, 1 CPU",
        'run.sweep["cpus=2,seed=7"]': "Ray cluster: 1 node, 2 CPUs",
    }
    sgpu.ran("apply", "-y")
    found = []
    for address in sizes:
        (result,) = sgpu.data("results", address)["results"]
        found.append(result["value"])
    assert found == [[1, 1.0, 1], [2, 2.0, 1]]
    sgpu.done("plan", "--detailed-exitcode")
