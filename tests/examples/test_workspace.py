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

    applied = item.sgpu("apply", "-y", "--logs", "all", *THERE, "run.yaml")

    assert applied.returncode == 0, applied.stderr
    runs = item.data("status")["runs"]
    assert {run["state"] for run in runs} == {"succeeded"}
    assert {run["backend"] for run in runs} == {"databricks"}
    assert item.sgpu("plan", "--detailed-exitcode", *THERE, "run.yaml").returncode == 0
