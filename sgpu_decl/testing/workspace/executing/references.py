"""What a task is given when it starts: references to values of its launch filled in, and the
parameters of the job.

Sources: https://docs.databricks.com/aws/en/jobs/dynamic-value-references,
https://docs.databricks.com/aws/en/jobs/job-parameters (pushdown: a parameter of the job wins over
one of the task), https://docs.databricks.com/aws/en/jobs/if-else (conditions).
"""

import re
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from sgpu_decl.testing.workspace.executing.records import Run

__all__ = ["FILLED", "condition_holds", "filled", "filled_in", "parameters_of"]

_REFERENCE = re.compile(r"\{\{\s*([\w.-]+)\s*\}\}")
FILLED = ("spark_python_task", "notebook_task", "condition_task")
"""Tasks whose fields may have references. Those of an `ai_runtime_task` are left: nothing says that
they are filled in."""

_ORDERED: Mapping[str, Callable[[float, float], bool]] = MappingProxyType(
    {
        "GREATER_THAN": lambda left, right: left > right,
        "GREATER_THAN_OR_EQUAL": lambda left, right: left >= right,
        "LESS_THAN": lambda left, right: left < right,
        "LESS_THAN_OR_EQUAL": lambda left, right: left <= right,
    }
)


def parameters_of(run: Run) -> dict[str, str]:
    """The parameters of the job as a launch has them."""
    declared: Any = run.settings.get("parameters") or ()
    return {
        **{str(one["name"]): str(one.get("default") or "") for one in declared},
        **{key: str(value) for key, value in run.parameters.items()},
    }


def filled_in(task: Mapping[str, Any], run: Run) -> dict[str, Any]:
    """A task as it starts."""
    parameters = parameters_of(run)
    values = {
        **{f"job.parameters.{key}": value for key, value in parameters.items()},
        "job.id": str(run.job_id),
        "job.run_id": str(run.run_id),
        "job.name": run.name,
        "task.name": str(task["task_key"]),
    }
    own = {key: filled(value, values) if key in FILLED else value for key, value in task.items()}
    notebook = own.get("notebook_task")
    if notebook is not None:
        given = {**(notebook.get("base_parameters") or {}), **parameters}
        own["notebook_task"] = {**notebook, "base_parameters": given}
    loop = own.get("for_each_task")
    if loop is not None:  # its nested task is filled in when an iteration starts
        own["for_each_task"] = {**loop, "inputs": filled(loop["inputs"], values)}
    return own


def condition_holds(condition: Mapping[str, Any]) -> bool:
    """Whether a condition is true. Only the comparisons that order take numbers.

    Raises:
        ValueError: one of them is none.
    """
    left, right, op = str(condition["left"]), str(condition["right"]), str(condition["op"])
    if op == "EQUAL_TO":
        return left == right
    if op == "NOT_EQUAL":
        return left != right
    return _ORDERED[op](float(left), float(right))


def filled(value: Any, values: Mapping[str, str]) -> Any:
    """A value with these references filled in. What is none of them stays as it is."""
    if isinstance(value, str):
        return _REFERENCE.sub(lambda match: values.get(match[1], match[0]), value)
    if isinstance(value, Mapping):
        return {key: filled(item, values) for key, item in value.items()}
    if isinstance(value, list):
        return [filled(item, values) for item in value]
    return value
