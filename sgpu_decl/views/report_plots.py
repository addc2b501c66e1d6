"""The plots of a report, as Vega-Lite (https://vega.github.io/vega-lite/docs/spec.html). They are
SVG in the colours of the page's style sheet, so they follow its theme, and print sharp."""

import json
import statistics
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from sgpu_decl.atomic_files import write_cache
from sgpu_decl.model.attempt_report import MetricCurve, RankSpan, RunPhase, UsagePlot

Plot = dict[str, Any]
T = TypeVar("T")
LINES = 4  # lanes that are drawn as lines; more of them are a band with those that differ
_OUTLIERS = 3
_FAR = 4.0  # times the usual distance from the median
_COLOURS = ["blue", "orange", "green", "purple", "teal", "olive", "pink", "red"]
_STATES = {
    "queued": "grey", "staging": "grey", "starting": "orange", "running": "blue",
    "stopping": "purple", "succeeded": "green", "failed": "red", "stopped": "grey",
    "unknown": "grey",
}  # fmt: skip
_FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, sans-serif"
_CONFIG: Plot = {
    "background": "transparent",
    "font": _FONT,
    "view": {"stroke": None},
    "axis": {
        "labelColor": "var(--muted)", "titleColor": "var(--muted)", "gridColor": "var(--line)",
        "domainColor": "var(--line)", "tickColor": "var(--line)", "titleFontWeight": "normal",
        "labelFontSize": 11, "titleFontSize": 11,
    },
    "legend": {
        "labelColor": "var(--muted)", "titleColor": "var(--muted)", "labelFontSize": 11,
        "orient": "bottom", "title": None, "symbolType": "stroke", "symbolStrokeWidth": 3,
    },
    "line": {"strokeWidth": 1.6, "clip": True},
}  # fmt: skip


@cache
def plot_library() -> str | None:
    """The JavaScript that draws plots, None where the extra `report` is not installed."""
    try:
        import vl_convert
    except ImportError:
        return None
    from importlib.metadata import version

    import platformdirs

    name = f"vega-{version('vl-convert-python')}.js"
    kept = Path(platformdirs.user_cache_path("sgpu")) / name  # it takes two seconds to make
    with suppress(OSError):
        return kept.read_text("utf-8")
    bundle: str = vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;")
    bundle = bundle.replace("</script", "<\\/script")
    write_cache(kept, bundle.encode())
    return bundle


def plot_json(plot: Plot) -> str:
    """A plot as JSON that can stand inside of HTML."""
    whole = {
        "$schema": "https://vega.github.io/schema/vega-lite/v6.json",
        "width": "container",
        "autosize": {"type": "fit-x", "contains": "padding"},
        "config": _CONFIG,
        **plot,
    }
    text = json.dumps(whole, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace("&", "\\u0026")


def timeline_plot(phases: Sequence[RunPhase], spans: Sequence[RankSpan]) -> Plot:
    """The states of a run, and below them a bar for each rank."""
    unit, size = _time_unit(
        max([*(one.end for one in phases), *(one.end for one in spans)], default=0.0)
    )
    rows = [
        {"lane": "run", "start": one.start / size, "end": one.end / size, "state": one.state,
         "detail": ""}
        for one in phases
    ]  # fmt: skip
    rows += [
        {"lane": f"rank {one.rank}", "start": one.start / size, "end": one.end / size,
         "state": one.how, "detail": one.detail, "restart": one.restart, "node": one.node}
        for one in spans
    ]  # fmt: skip
    lanes = list(dict.fromkeys(row["lane"] for row in rows))
    step = max(5, min(20, 400 // max(1, len(lanes))))
    tips = [("lane", ""), ("state", "state"), ("start", f"from ({unit})"), ("end", f"to ({unit})")]
    if spans:
        tips += [("detail", "exit"), ("restart", "restart"), ("node", "node")]
    used = [state for state in _STATES if any(row["state"] == state for row in rows)]
    return {
        "description": "timeline of phases and ranks",
        "height": step * max(1, len(lanes)),
        "data": {"values": _rounded(rows)},
        "mark": {"type": "bar", "cornerRadius": 2, "tooltip": True, "minBandSize": 3},
        "encoding": {
            "y": {
                "field": "lane", "type": "ordinal", "title": None, "sort": lanes,
                "axis": {"labelOverlap": "greedy", "grid": False, "ticks": False, "domain": False,
                         "minExtent": 48},
            },
            "x": {"field": "start", "type": "quantitative", "title": f"time ({unit})",
                  "scale": {"nice": False}, "axis": {"tickCount": 8}},
            "x2": {"field": "end"},
            "color": {
                "field": "state", "type": "nominal",
                "scale": {"domain": used, "range": [f"var(--{_STATES[one]})" for one in used]},
                "legend": {"symbolType": "square", "symbolStrokeWidth": 0},
            },
            "tooltip": [_tip(field, title) for field, title in tips],
        },
    }  # fmt: skip


def usage_plot(usage: UsagePlot) -> Plot:
    """What lanes used over the time: each as a line, or if they are many, the median in the band
    of all, and the lanes that differ most."""
    lanes = usage.lanes
    length = max(map(len, lanes.values()))
    unit, size = _time_unit(usage.start + usage.width * length)
    times = [(usage.start + usage.width * (at + 0.5)) / size for at in range(length)]
    shown = dict(lanes)
    band: dict[str, list[float | None]] = {}
    if len(lanes) > LINES:
        columns = [
            [
                one
                for values in lanes.values()
                if at < len(values) and (one := values[at]) is not None
            ]
            for at in range(length)
        ]
        band = {
            "low": [min(column, default=None) for column in columns],
            "high": [max(column, default=None) for column in columns],
            "median": [statistics.median(column) if column else None for column in columns],
        }
        shown = {name: lanes[name] for name in outliers(lanes)}
    fields = {f"v{number}": name for number, name in enumerate(shown)}
    rows: list[dict[str, Any]] = []
    for at, moment in enumerate(times):
        row: dict[str, Any] = {"t": moment}
        row |= {name: values[at] for name, values in band.items()}
        for field, values in zip(fields, shown.values(), strict=True):
            row[field] = values[at] if at < len(values) else None
        rows.append(row)
    lines = {**({"median": f"median of {len(lanes)}"} if band else {}), **fields}
    tips = [_tip("t", f"time ({unit})")]
    tips += [_tip("low", "lowest"), _tip("high", "highest")] if band else []
    tips += [_tip(field, name) for field, name in lines.items()]
    x = {"field": "t", "type": "quantitative", "title": f"time ({unit})",
         "scale": {"nice": False}, "axis": {"grid": False, "tickCount": 6}}  # fmt: skip
    top = {"domainMax": usage.most} if usage.most else {}
    y_scale = {"zero": True, "domainMin": 0, **top}
    layers: list[Plot] = []
    if band:
        layers.append(
            {
                "mark": {"type": "area", "color": "var(--blue)", "opacity": 0.2},
                "encoding": {
                    "y": {"field": "low", "type": "quantitative"},
                    "y2": {"field": "high"},
                },
            }
        )
    layers += [_line(field, name) for field, name in lines.items()]
    layers.append(_hover("t", tips))
    return {
        "description": f"{usage.title} over the time",
        "height": 150,
        "data": {"values": _rounded(rows)},
        "encoding": {
            "x": x,
            "y": {"type": "quantitative", "title": usage.unit, "scale": y_scale,
                  "axis": {"tickCount": 4}},
            "color": _colours(list(lines.values())),
        },
        "layer": layers,
    }  # fmt: skip


def curve_plot(curve: MetricCurve) -> Plot:
    """A metric by its step."""
    rows = [{"step": step, "value": value} for step, value in curve.points]
    mark: Plot = {"type": "line", "color": "var(--blue)", "point": False}
    if len(rows) < 30:
        mark["point"] = {"fill": "var(--blue)", "size": 16}
    tips = [_tip("step", "step"), _tip("value", curve.name)]
    return {
        "description": f"{curve.name} by step",
        "height": 150,
        "data": {"values": rows},
        "encoding": {
            "x": {"field": "step", "type": "quantitative", "title": "step",
                  "scale": {"nice": False, "zero": False}, "axis": {"grid": False, "tickCount": 6}},
            "y": {"field": "value", "type": "quantitative", "title": None,
                  "scale": {"zero": False}, "axis": {"tickCount": 4}},
        },
        "layer": [{"mark": mark}, _hover("step", tips)],
    }  # fmt: skip


def parallel_plot(
    axes: Mapping[str, Sequence[object]], names: Sequence[str], states: Sequence[str]
) -> Plot:
    """A line for each run through its values on all axes; the last axis gives the colour.

    Args:
        axes: the values of all runs by the name of the axis, in the order of `names`; None where a
            run has none.
    """
    rows: list[dict[str, Any]] = []
    ends: list[dict[str, Any]] = []
    last = list(axes)[-1] if axes else ""
    for axis, values in axes.items():
        placed, labels = _placed(values)
        ends += [{"axis": axis, "at": at, "label": label} for label, at in labels]
        colour = axes[last]
        for name, state, value, at, shade in zip(
            names, states, values, placed, _placed(colour)[0], strict=True
        ):
            if at is not None:
                rows.append(
                    {"run": name, "state": state, "axis": axis, "value": value, "at": at,
                     "shade": shade}
                )  # fmt: skip
    order = list(axes)
    x = {"field": "axis", "type": "ordinal", "sort": order, "title": None,
         "scale": {"type": "point", "padding": 0.3},
         "axis": {"orient": "top", "labelAngle": 0, "domain": False, "ticks": False,
                  "labelColor": "var(--ink)", "labelFontWeight": "bold", "labelFontSize": 12,
                  "labelLimit": 140, "labelOverlap": "greedy"}}  # fmt: skip
    y = {"field": "at", "type": "quantitative", "axis": None, "scale": {"domain": [-0.04, 1.04]}}
    chosen = {"param": "chosen", "empty": False}
    text = {"type": "text", "align": "left", "dx": 6, "fontSize": 11}
    return {
        "description": "parallel coordinates of the runs",
        "height": 260,
        "layer": [
            {
                "data": {"values": [{"axis": axis} for axis in order]},
                "mark": {"type": "rule", "color": "var(--line)", "strokeWidth": 2},
                "encoding": {"x": x},
            },
            {
                "data": {"values": rows},
                "params": [
                    {"name": "chosen", "select": {"type": "point", "fields": ["run"],
                                                  "on": "pointerover", "clear": "pointerout"}}
                ],
                "mark": {"type": "line", "strokeWidth": 2, "interpolate": "monotone"},
                "encoding": {
                    "x": x,
                    "y": y,
                    "detail": {"field": "run"},
                    "color": {"field": "shade", "type": "quantitative", "legend": None,
                              "scale": {"domain": [0, 1], "range": ["#3d7bea", "#e08a2b"]}},
                    "strokeWidth": {"condition": {**chosen, "value": 4}, "value": 1.6},
                    "opacity": {"condition": {**chosen, "value": 1}, "value": 0.75},
                    "tooltip": [_tip("run", "run"), _tip("state", "state")],
                },
            },
            {
                "data": {"values": ends},
                "mark": {**text, "stroke": "var(--paper)", "strokeWidth": 4},
                "encoding": {"x": x, "y": y, "text": {"field": "label"}},
            },
            {
                "data": {"values": ends},
                "mark": {**text, "color": "var(--ink)"},
                "encoding": {"x": x, "y": y, "text": {"field": "label"}},
            },
        ],
    }  # fmt: skip


def outliers(lanes: Mapping[str, Sequence[float | None]]) -> list[str]:
    """The lanes whose mean clearly differs from that of the others, the most different first."""
    means = {
        name: statistics.fmean(known)
        for name, values in lanes.items()
        if (known := [one for one in values if one is not None])
    }
    if len(means) < 3:
        return []
    middle = statistics.median(means.values())
    usual = statistics.median(abs(mean - middle) for mean in means.values())
    least = max(_FAR * usual, 0.1 * max(map(abs, means.values())), 1e-9)
    far = [name for name, mean in means.items() if abs(mean - middle) > least]
    return sorted(far, key=lambda name: -abs(means[name] - middle))[:_OUTLIERS]


def _placed(values: Sequence[object]) -> tuple[list[float | None], list[tuple[str, float]]]:
    """Where values stand on an axis from 0 to 1, and the labels of its places."""
    known = [value for value in values if value is not None]
    if known and all(isinstance(one, int | float) and not isinstance(one, bool) for one in known):
        numbers = sorted({float(one) for one in known})  # type: ignore[arg-type]
        low, high = numbers[0], numbers[-1]
        if len(numbers) > 4:
            size = high - low or 1.0
            at = {number: (number - low) / size for number in numbers}
            labels = [(f"{low:.4g}", 0.0), (f"{high:.4g}", 1.0)]
        else:  # a few values stand apart, such as 0.1, 0.01 and 0.001
            at = _evenly(numbers)
            labels = [(f"{number:.4g}", at[number]) for number in numbers]
        return [None if one is None else at[float(one)] for one in values], labels  # type: ignore[arg-type]
    words = list(dict.fromkeys(map(str, known)))
    at_words = _evenly(words)
    return [None if one is None else at_words[str(one)] for one in values], list(at_words.items())


def _evenly(items: Sequence[T]) -> dict[T, float]:
    if len(items) == 1:
        return {items[0]: 0.5}
    return {item: number / (len(items) - 1) for number, item in enumerate(items)}


def _line(field: str, name: str) -> Plot:
    return {
        "mark": {"type": "line"},
        "encoding": {"y": {"field": field, "type": "quantitative"}, "color": {"datum": name}},
    }


def _hover(field: str, tips: Sequence[Plot]) -> Plot:
    """A line at the nearest value of a field, with a tooltip."""
    near = {"type": "point", "fields": [field], "nearest": True, "on": "pointerover",
            "clear": "pointerout"}  # fmt: skip
    return {
        "params": [{"name": "near", "select": near}],
        "mark": {"type": "rule", "color": "var(--muted)", "strokeWidth": 1},
        "encoding": {
            "y": None,
            "color": {"value": "var(--muted)"},
            "opacity": {"condition": {"param": "near", "empty": False, "value": 0.8}, "value": 0},
            "tooltip": list(tips),
        },
    }


def _colours(names: Sequence[str]) -> Plot:
    colours = [f"var(--{_COLOURS[at % len(_COLOURS)]})" for at in range(len(names))]
    return {"type": "nominal", "scale": {"domain": list(names), "range": colours}}


def _tip(field: str, title: str) -> Plot:
    return {"field": field, "title": title or field}


def _time_unit(seconds: float) -> tuple[str, float]:
    """The unit of a time axis, and its seconds."""
    if seconds < 180:
        return "s", 1.0
    return ("min", 60.0) if seconds < 3 * 3600 else ("h", 3600.0)


def _rounded(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    return [dict(_row(row)) for row in rows]


def _row(row: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, value in row.items():
        yield name, float(f"{value:.5g}") if isinstance(value, float) else value
