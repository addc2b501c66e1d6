"""The metrics that ranks leave in `SGPU_OUTPUT_DIR/metrics.json`, for programs without MLflow.

The file is a JSON object of numbers, `{"loss": 0.1, "eval": {"loss": 0.2}}`, or one object on each
line, with a `step` where there is one. Objects inside give names such as `eval/loss`.
"""

from __future__ import annotations

import math
import os

from sgpu_decl.agent.system.fast_stdlib import loads
from sgpu_decl.agent.system.safe_files import regular_opener

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import Any

METRICS = "metrics.json"
_LARGEST = 8 << 20  # bytes: the last ones of a longer file
_MOST_NAMES = 200  # they fit into the disk space that is reserved for the outcome
_LONGEST_NAME = 250  # as in MLflow
_STEPS = 2**63  # a larger one is no step, and neither is NaN


class MetricSeries:
    """`rows` are the values with their steps, as written; `problem` says what could not be read."""

    __slots__ = ("problem", "rows")

    def __init__(self) -> None:
        self.rows: list[tuple[int | None, dict[str, float]]] = []
        self.problem: str | None = None

    def last(self) -> dict[str, float]:
        """Return the last value of each metric: that of the highest step, or of the last line."""
        values: dict[str, tuple[int, float]] = {}
        for step, row in self.rows:
            for name, value in row.items():
                order = values[name][0] if name in values else 0
                at = order if step is None else step
                if name not in values or at >= order:
                    values[name] = (at, value)
        return {name: value for name, (_, value) in values.items()}


def last_metrics(spec: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the record of an attempt has of its metrics: the last values, null for one that
    is not finite, as JSON has none; and what could not be read."""
    series = read_metrics(os.path.join(spec["run_dir"], spec["output_dir"]))
    values = {
        name: value if math.isfinite(value) else None for name, value in series.last().items()
    }
    fields = {"metrics": values, "metrics_problem": series.problem}
    return {name: value for name, value in fields.items() if value}


def read_metrics(output: str) -> MetricSeries:
    """Return what the file in an output folder says; nothing where there is none."""
    series = MetricSeries()
    try:
        with open(os.path.join(output, METRICS), "rb", opener=regular_opener) as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - _LARGEST))
            text = file.read(_LARGEST).decode("utf-8", "replace")
    except FileNotFoundError:
        return series
    except OSError as error:
        series.problem = f"`{METRICS}` cannot be read: {error.strerror}"
        return series
    if size > _LARGEST:
        text = text.partition("\n")[2]
    names: set[str] = set()
    for place, item in _items(text):
        values = dict(_numbers(item, "")) if isinstance(item, dict) else None
        if not values and series.problem is None:
            what = "no JSON" if item is None else "no object with numbers"
            series.problem = f"{place} of `{METRICS}` is {what}"
        if values:
            step = values.pop("step", None)
            if step is not None and not -_STEPS < step < _STEPS:
                step = None
            kept = {name: values[name] for name in values if name in names or _fits(name, names)}
            if len(kept) < len(values) and series.problem is None:
                series.problem = f"`{METRICS}` has more than {_MOST_NAMES} names, or too long ones"
            series.rows.append((None if step is None else int(step), kept))
    return series


def _fits(name: str, names: set[str]) -> bool:
    if len(names) >= _MOST_NAMES or len(name) > _LONGEST_NAME:
        return False
    names.add(name)
    return True


def _items(text: str) -> Iterator[tuple[str, Any]]:
    """Yield what each line holds, or the whole file; None for what is no JSON."""
    whole = _parsed(text)
    if isinstance(whole, list):
        yield from ((f"item {number}", item) for number, item in enumerate(whole, 1))
    elif whole is not None:
        yield "the content", whole
    else:
        for number, line in enumerate(text.split("\n"), 1):
            if line.strip():
                yield f"line {number}", _parsed(line)


def _parsed(text: str) -> Any:
    try:
        return loads(text)
    except (ValueError, RecursionError):
        return None


def _numbers(item: Mapping[str, Any], before: str) -> Iterator[tuple[str, float]]:
    for key, value in item.items():
        name = f"{before}{key}"
        if isinstance(value, dict):
            yield from _numbers(value, f"{name}/")
        elif isinstance(value, (int, float)) and not isinstance(value, bool):
            try:
                yield name, float(value)
            except OverflowError:
                yield name, float("inf") if value > 0 else float("-inf")
