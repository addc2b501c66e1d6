"""Examples on a workspace that runs here: nodes have what nodes of the platform have.

Those that name the platform have tests of their own; `environment` is about this machine: it waits
for a file in the project's folder.
"""

from collections.abc import Callable
from typing import Any

import pytest

Copied = Callable[[str], Any]  # gives an Example of conftest.py
THERE = tuple(
    word
    for setting in (
        "backend=databricks", "type=A10", "env.base=gpu-4",
        "mlflow.enabled=true", "max_parallel=null",  # as the plan's hints say
    )
    for word in ("--set", setting)
)  # fmt: skip


@pytest.mark.expensive
@pytest.mark.parametrize("name", ["command", "hello", "matrix"])
def test_an_example_applies_and_is_then_up_to_date(
    example: Copied, workspace: Any, name: str
) -> None:
    item = example(name)

    applied = item.sgpu("apply", "-y", "--rank", "all", *THERE, "run.yaml")

    assert applied.returncode == 0, applied.stderr
    runs = item.data("status")["runs"]
    assert {run["state"] for run in runs} == {"succeeded"}
    assert {run["backend"] for run in runs} == {"databricks"}
    assert item.sgpu("plan", "--detailed-exitcode", *THERE, "run.yaml").returncode == 0


@pytest.mark.ray
@pytest.mark.expensive
@pytest.mark.parametrize("count", [1, 2])
def test_the_ray_example_has_a_cluster_over_its_nodes(
    example: Copied, workspace: Any, count: int
) -> None:
    item = example("ray")
    # Nodes here have the packages of this interpreter, which a plan cannot know; and no GPU.
    nodes = (f"gpus={count}", "ray.num_gpus=0", "env.variables.PYTHONPATH=/nonexistent")
    there = (*THERE, *(word for setting in nodes for word in ("--set", setting)))

    applied = item.sgpu("apply", "-y", *there, "run.yaml")

    assert applied.returncode == 0, applied.stderr
    assert f"of 4 tasks on {count} node(s)" in applied.stdout
    (run,) = item.data("status")["runs"]
    assert [(rank["rank"], rank["state"]) for rank in run["ranks"]] == [(0, "succeeded")]
    (result,) = item.data("results", "sweep")["results"]
    assert result["value"]["rate"] == 0.3
    assert item.sgpu("plan", "--detailed-exitcode", *there, "run.yaml").returncode == 0
