"""What the nodes of an attempt recorded, as values of a report: events, series, metrics. Each
reader takes what it can of a file that is cut short or damaged."""

import json
import math
import sqlite3
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from sgpu_decl.agent.monitor.series_file import read_series
from sgpu_decl.model.attempt_report import MetricCurve, RankSpan, RunPhase, UsagePlot

_POINTS = 300  # of a line: more than its pixels tell apart
_CURVE_POINTS = 400
_SOON = 60.0  # seconds within which a monitor begins
Event = Mapping[str, Any]


def read_events(path: Path) -> list[Event]:
    """The events of a node with their `seconds` since its first one, by a clock that nobody sets.
    Lines that are no events are left out.

    Raises:
        OSError: the file cannot be read.
    """
    events: list[Event] = []
    first = last = 0
    for line in path.read_bytes().splitlines():
        try:
            event = json.loads(line[line.index(b"{") :])
            moment = int(event["mono_ns"])
        except (ValueError, KeyError, TypeError):
            continue
        first, last = (moment, moment) if not events else (first, max(last, moment))
        events.append({**event, "seconds": (last - first) / 1e9})
    return events


def phases_in(events: Sequence[Event], end: float) -> tuple[RunPhase, ...]:
    """The states that an attempt went through, until `end`."""
    states = [(event["seconds"], str(event.get("state"))) for event in events if _is_state(event)]
    following = [*states, (end, "")][1:]
    return tuple(
        RunPhase(state=state, start=start, end=max(start, until))
        for (start, state), (until, _) in zip(states, following, strict=True)
        if state not in ("succeeded", "failed", "cancelled", "lost")
    )


def spans_in(
    nodes: Mapping[int, Sequence[Event]],
    end: float,
    ended: Mapping[int, tuple[str, str]],
) -> tuple[RankSpan, ...]:
    """When each rank ran, in each of its starts. Of `ended` ranks it is known how."""
    started: dict[tuple[int, int], tuple[int, float]] = {}
    over: dict[tuple[int, int], tuple[float, str]] = {}
    for node, events in sorted(nodes.items()):
        for event in events:
            key = (event.get("rank"), event.get("restart", 0))
            if not all(isinstance(one, int) for one in key):
                continue
            if event.get("event") == "rank_started":
                started.setdefault(key, (node, event["seconds"]))  # type: ignore[arg-type]
            elif event.get("event") == "rank_ended":
                how = event.get("signal") or event.get("exit_code")
                over.setdefault(key, (event["seconds"], "" if how is None else str(how)))  # type: ignore[arg-type]
    last = {rank: max(one for r, one in started if r == rank) for rank, _ in started}
    spans = []
    for (rank, restart), (node, start) in sorted(started.items()):
        until, detail = over.get((rank, restart), (end, ""))
        how, said = ended.get(rank, ("unknown", ""))
        if restart != last[rank]:
            how = "succeeded" if detail == "0" else "failed" if detail.isdigit() else "stopped"
        spans.append(
            RankSpan(
                rank=rank, node=node, restart=restart, start=start, end=max(start, until), how=how,
                detail=detail or said,
            )
        )  # fmt: skip
    return tuple(spans)


def _is_state(event: Event) -> bool:
    return event.get("event") == "state"


def offsets(nodes: Mapping[int, Sequence[Event]]) -> dict[int, float]:
    """Seconds from the first event of the first node to that of each: by their wall clocks, as far
    as these agree."""
    from datetime import datetime

    def wall(events: Sequence[Event]) -> float | None:
        try:
            return datetime.fromisoformat(str(events[0]["time"])).timestamp()
        except (IndexError, KeyError, ValueError):
            return None

    begun = {node: wall(events) for node, events in nodes.items()}
    first = begun.get(min(nodes, default=0))
    length = max((events[-1]["seconds"] for events in nodes.values() if events), default=0.0)
    return {
        node: moment - first
        if moment is not None and first is not None and 0 <= moment - first <= length
        else 0.0
        for node, moment in begun.items()
    }


def usage_in(
    paths: Mapping[int, Path], events: Mapping[int, Sequence[Event]]
) -> tuple[tuple[UsagePlot, ...], list[str]]:
    """What ranks and GPUs used, by the series of each node, and what could not be read. `events`
    are those of each node."""
    gaps: list[str] = []
    found: list[tuple[int, Mapping[str, Any]]] = []
    for node, path in sorted(paths.items()):
        try:
            found.append((node, read_series(path, points=_POINTS)))
        except (OSError, sqlite3.Error, KeyError, TypeError, ValueError) as error:
            gaps.append(f"what the ranks of node {node} used: its series is damaged ({error})")
    lanes: dict[str, dict[str, dict[int, float]]] = {name: {} for name in _PLOTS}
    width = max((_width(series) for _, series in found), default=1)
    starts = {node: _begin(series, events.get(node, ())) for node, series in found}
    begin = min(starts.values(), default=0.0)
    for node, series in found:
        several = f"node {node} " if len(paths) > 1 else ""
        moved = int((starts[node] - begin) // width)
        for rank, rows in series["ranks"].items():
            _add(lanes, ("cpu", "memory"), f"rank {rank}", rows, width, moved)
        for device, rows in series["devices"].items():
            _add(lanes, ("gpu", "gpu_memory"), f"{several}GPU {device}", rows, width, moved)
    rooms = [
        row["room"] or 0
        for _, series in found
        for rows in series["devices"].values()
        for row in rows[:1]
    ]
    plots = []
    for name, (title, unit, _, _) in _PLOTS.items():
        if not lanes[name]:
            continue
        length = 1 + max(max(values) for values in lanes[name].values())
        most = 100.0 if name == "gpu" else max(rooms) / 1024 if name == "gpu_memory" else None
        plots.append(
            UsagePlot(
                title=title, unit=unit, start=begin, width=width, most=most,
                lanes={
                    lane: tuple(values.get(at) for at in range(length))
                    for lane, values in lanes[name].items()
                },
            )
        )  # fmt: skip
    return tuple(plots), gaps


_PLOTS = {
    "gpu": ("GPU utilisation", "%", "utilisation", 1.0),
    "gpu_memory": ("GPU memory", "GiB", "memory", 1 / 1024),
    "cpu": ("CPU of each rank", "cores", "cpu", 1e-3),
    "memory": ("Memory of each rank", "GiB", "memory", 1 / 1024),
}
"""For each plot: its title, its unit, the column of the series, and what its values are times."""


def _begin(series: Mapping[str, Any], events: Sequence[Event]) -> float:
    """When the monitor of a node began, in seconds since the first event. Its clock goes on while
    the machine sleeps, and that of events does not: then it is when the first rank started."""
    first = next((one for one in events if one.get("event") == "rank_started"), None)
    if first is None:
        return 0.0
    later = float(series["clock"]) - int(first["mono_ns"]) / 1e9
    return float(first["seconds"]) + (later if 0 <= later < _SOON else 0.0)


def _width(series: Mapping[str, Any]) -> int:
    groups = (*series["ranks"].values(), *series["devices"].values())
    return max((row["span"] for rows in groups for row in rows[:1]), default=1)


def _add(
    lanes: dict[str, dict[str, dict[int, float]]],
    plots: Iterable[str],
    lane: str,
    rows: Sequence[Mapping[str, Any]],
    width: int,
    moved: int,
) -> None:
    for plot in plots:
        _, _, column, factor = _PLOTS[plot]
        values = {
            row["at"] // width + moved: round(row[column] * factor, 3)
            for row in rows
            if row[column] is not None
        }
        if values:
            lanes[plot][lane] = values


def curve(name: str, values: Sequence[tuple[int, float]]) -> MetricCurve:
    """A metric of these steps and values: of many, the lowest and the highest of neighbours."""
    finite = [(step, value) for step, value in values if math.isfinite(value)]
    lost = [step for step, value in values if not math.isfinite(value)]
    if len(finite) > _CURVE_POINTS:
        size = -(-len(finite) * 2 // _CURVE_POINTS)
        finite = [
            point for at in range(0, len(finite), size) for point in _ends(finite[at:][:size])
        ]
    return MetricCurve(
        name=name, points=tuple(finite), lost=len(lost), lost_at=lost[0] if lost else None
    )


def _ends(points: Sequence[tuple[int, float]]) -> Iterator[tuple[int, float]]:
    low = min(points, key=lambda point: point[1])
    high = max(points, key=lambda point: point[1])
    yield from sorted({low, high})


def reported_in(path: Path) -> dict[str, list[tuple[int, float]]]:
    """The metrics that ranks told with their progress, by name, from the series of their node;
    empty if that is damaged."""
    try:
        series = read_series(path, points=_CURVE_POINTS)
    except (OSError, sqlite3.Error, KeyError, TypeError, ValueError):
        return {}
    return {
        str(name): [(int(row["step"]), float(row["value"])) for row in rows]
        for name, rows in series["metrics"].items()
    }


def rows_of_file(
    rows: Iterable[tuple[int | None, Mapping[str, float]]],
) -> dict[str, list[tuple[int, float]]]:
    """The values of `metrics.json` by name; a line without a step has its number."""
    found: dict[str, list[tuple[int, float]]] = defaultdict(list)
    for number, (step, values) in enumerate(rows):
        for name, value in values.items():
            found[name].append((number if step is None else step, value))
    return found
