"""Loops of jobs: a `for_each_task` runs its nested task once for each item of a list.

Source: https://docs.databricks.com/aws/en/jobs/for-each (items are JSON values; `{{input}}` is the
item, `{{input.key}}` a field of it; one iteration at a time unless `concurrency` says more).
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from sgpu_decl.testing.workspace.executing.references import FILLED, filled

__all__ = ["LOOP", "for_item", "items_of", "nested_task"]

LOOP = "for_each_task"


def nested_task(task: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """What a task runs for each item, if it is a loop."""
    loop = task.get(LOOP)
    return None if loop is None else loop["task"]


def items_of(inputs: str) -> Sequence[Any]:
    """What a loop runs for. Raises ValueError where that is no list."""
    try:
        items = json.loads(inputs)
    except ValueError:
        items = None
    if not isinstance(items, list):
        raise ValueError(f"The inputs of a For each task are no JSON array: {inputs[:100]}")
    return items


def for_item(task: Mapping[str, Any], item: Any) -> dict[str, Any]:
    """A nested task for one item."""
    fields = item if isinstance(item, dict) else {}
    values = {"input": _text(item), **{f"input.{key}": _text(one) for key, one in fields.items()}}
    return {key: filled(value, values) if key in FILLED else value for key, value in task.items()}


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)
