"""How far a program is, and how long it will still take: from what it reports, and when."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

_MOST_METRICS = 20
_LONGEST_NAME = 100
_LARGEST = 2**53
_KEPT = 512  # points of the history; then every second one goes
_LEAST_POINTS = 3


class Report(NamedTuple):
    """One report. `step` counts from 0, and may be between two; `total` is None where nobody knows.
    `source` says whose word it is: `reported`, `trainer`, `bar`, `log` or `mlflow`."""

    step: float
    total: float | None = None
    unit: str = "step"
    source: str = "reported"
    metrics: dict[str, float] = {}  # noqa: RUF012  never changed


RANKING = ("reported", "trainer", "bar", "log", "mlflow")
"""Whose word counts, if several speak."""


def checked(
    step: object, total: object, metrics: object, *, source: str, unit: str = "step"
) -> Report | None:
    """A report from values that may be anything; None where they are none."""
    done, whole = _number(step), _number(total)
    if done is None or done < 0:
        return None
    if whole is not None and whole <= 0:
        whole = None
    values: dict[str, float] = {}
    for name, value in metrics.items() if isinstance(metrics, dict) else ():
        number = _number(value, finite=False)
        if number is not None and len(values) < _MOST_METRICS:
            values[str(name)[:_LONGEST_NAME]] = number
    return Report(step=done, total=whole, unit=unit, source=source, metrics=values)


def _number(value: object, *, finite: bool = True) -> float | None:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    if finite and (not math.isfinite(number) or abs(number) > _LARGEST):
        return None
    return number


class ProgressEstimate:
    """Reports in their order, and the estimate that follows from them.

    The speed is the mean since the second report: the first steps compile, and fill caches. A step
    that goes back begins a new count.
    """

    def __init__(self) -> None:
        self._points: list[tuple[float, float]] = []
        self._last: Report | None = None
        self._at = 0.0

    def add(self, report: Report, now: float) -> None:
        """Take a report; `now` is in seconds, of a clock that nobody sets."""
        last = self._last
        if last is not None and report.unit == "percent" and last.unit == "step" and last.total:
            step = last.total * min(report.step, 100) / 100
            report = report._replace(step=step, total=last.total, unit="step")
        if last is not None and (report.step < last.step or report.unit != last.unit):
            self._points.clear()
        self._last, self._at = report, now
        if self._points and self._points[-1][1] == report.step:
            return
        self._points.append((now, report.step))
        if len(self._points) > _KEPT:
            self._points = self._points[:2] + self._points[2::2]

    @property
    def total(self) -> float | None:
        return None if self._last is None else self._last.total

    @property
    def rate(self) -> float | None:
        """Steps in a second; None while there are too few reports."""
        if len(self._points) < _LEAST_POINTS:
            return None
        (begin, first), (end, last) = self._points[1], self._points[-1]
        return (last - first) / (end - begin) if end > begin else None

    def to_json(self, now: float) -> dict[str, Any] | None:
        """What is known: `step`, `total`, `unit`, `percent`, `per_second`, `seconds_left`,
        `metrics`, `source`; None where a value is not known, and for all where nothing was
        reported. Metrics that are not finite are null."""
        last = self._last
        if last is None:
            return None
        rate, total = self.rate, last.total
        left = None
        if total is not None and last.step >= total:
            left = 0.0
        elif total is not None and rate:
            left = max(0.0, (total - last.step) / rate - (now - self._at))
        return {
            "step": int(last.step),
            "total": None if total is None else int(total),
            "unit": last.unit,
            "percent": None if total is None else round(min(100.0, 100 * last.step / total), 1),
            "per_second": None if rate is None else float(f"{rate:.4g}"),
            "seconds_left": None if left is None else round(left),
            "metrics": {
                name: value if math.isfinite(value) else None
                for name, value in last.metrics.items()
            },
            "source": last.source,
        }
