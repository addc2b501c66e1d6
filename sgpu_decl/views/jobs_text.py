"""Jobs for people: a line each, or one whole."""

import json
from collections.abc import Mapping, Sequence
from datetime import datetime

from sgpu_decl.model.jsonable import Json, canonical
from sgpu_decl.views.terminal import Colour, age, columns, escape, paint

__all__ = ["job_details", "job_table"]

_COLOURS = {
    "scheduled": Colour.GREEN,
    "paused": Colour.YELLOW,
    "missing": Colour.RED,
    "unknown": Colour.RED,
}
_WORDS = {
    "missing": "it was deleted in the workspace; `sgpu apply` makes it again",
    "manual": "nothing starts it by itself",
}


def job_table(jobs: Sequence[Mapping[str, Json]], *, now: datetime, colour: bool = False) -> str:
    """Return one line for each job: its name, its state, what starts it, how its last launch went,
    where it is."""
    rows = [
        (escape(str(job["name"])), str(job["state"]), _start(job), _last(job, now), _link(job))
        for job in jobs
    ]
    head = ("JOB", "STATE", "START", "LAST", "WHERE")
    widths = [max(columns(row[at]) for row in (head, *rows)) for at in range(4)]
    lines = [_line(head, widths, None)]
    lines += [_line(row, widths, _COLOURS.get(row[1]) if colour else None) for row in rows]
    return "\n".join(lines)


def job_details(job: Mapping[str, Json], *, now: datetime, colour: bool = False) -> str:
    """Return a job whole, with the settings that it has in the workspace."""
    state = str(job["state"])
    painted = paint(state, _COLOURS.get(state, Colour.DIM), on=colour)
    lines = [f"{escape(str(job['address']))}  {painted}"]
    lines += [f"  {name}: {escape(text)}" for name, text in _facts(job, now) if text]
    settings = job.get("live") or job.get("spec")
    lines.append("  settings:")
    lines += [f"    {escape(line)}" for line in json.dumps(settings, indent=2).splitlines()]
    return "\n".join(lines)


def _facts(job: Mapping[str, Json], now: datetime) -> list[tuple[str, str]]:
    last = job.get("last")
    return [
        ("called", str(job["title"] or "")),
        ("start", _start(job)),
        ("where", _link(job)),
        ("last launch", _last(job, now)),
        ("its logs", str(last["link"]) if isinstance(last, Mapping) else ""),
        ("note", str(job["error"] or _WORDS.get(str(job["state"]), ""))),
        ("declared in", str(job.get("owner") or "")),
    ]


def _last(job: Mapping[str, Json], now: datetime) -> str:
    last = job.get("last")
    if not isinstance(last, Mapping):
        return ""
    then = last["ended_at"] or last["started_at"]
    when = f", {age(datetime.fromisoformat(then), now)}" if isinstance(then, str) else ""
    return escape(f"{last['state']}{when}")


def _start(job: Mapping[str, Json]) -> str:
    if job["schedule"]:
        return escape(f"{job['schedule']} {job['timezone'] or ''}".rstrip())
    trigger = job["trigger"]
    return escape(_trigger(trigger)) if isinstance(trigger, Mapping) else ""


def _trigger(trigger: Mapping[str, Json]) -> str:
    match trigger:
        case {"periodic": {"interval": 1, "unit": str(unit)}}:
            return f"every {unit.lower().removesuffix('s')}"
        case {"periodic": {"interval": int(count), "unit": str(unit)}}:
            return f"every {count} {unit.lower()}"
        case {"file_arrival": {"url": str(url)}}:
            return f"files in {url}"
        case {"table_update": {"table_names": [*tables]}}:
            return f"updates of {', '.join(map(str, tables))}"
    return canonical(dict(trigger)) if trigger else ""


def _link(job: Mapping[str, Json]) -> str:
    links = job["links"]
    return escape(str(links.get("job", ""))) if isinstance(links, Mapping) else ""


def _line(row: Sequence[str], widths: Sequence[int], colour: Colour | None) -> str:
    cells = [text + " " * (wide - columns(text)) for text, wide in zip(row, widths, strict=False)]
    if colour is not None:
        cells[1] = paint(cells[1], colour, on=True)
    return "  ".join((*cells, row[-1])).rstrip()
