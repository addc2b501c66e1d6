"""Jobs for people: a line each, or one whole."""

import json
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime

from sgpu_decl.model.backend_kinds import job_rules
from sgpu_decl.model.job import JobView
from sgpu_decl.model.jsonable import Json, canonical
from sgpu_decl.views.terminal import Colour, age, columns, escape, paint

_COLOURS = {
    "scheduled": Colour.GREEN,
    "paused": Colour.YELLOW,
    "missing": Colour.RED,
    "unknown": Colour.RED,
}
_WORDS = {
    "missing": "it was deleted {where}; `sgpu apply` makes it again",
    "manual": "nothing starts it by itself",
}


def job_table(jobs: Sequence[JobView], *, now: datetime, colour: bool = False) -> str:
    """Return one line for each job: its name, its state, what starts it, how its last launch went,
    where it is."""
    rows = [
        (escape(job.address.label), job.state, _start(job), _last(job, now), escape(job.url or ""))
        for job in jobs
    ]
    head = ("JOB", "STATE", "START", "LAST", "WHERE")
    widths = [max(columns(row[at]) for row in (head, *rows)) for at in range(4)]
    lines = [_line(head, widths, None)]
    lines += [_line(row, widths, _COLOURS.get(row[1]) if colour else None) for row in rows]
    return "\n".join(lines)


def job_details(
    job: JobView, *, now: datetime, colour: bool = False, hints: Callable[[str], str] = str
) -> str:
    """Return a job whole, with the settings that it has in the workspace. `hints` completes the
    commands in texts of sgpu."""
    painted = paint(job.state, _COLOURS.get(job.state, Colour.DIM), on=colour)
    words = _WORDS.get(job.state, "")
    facts = {
        "called": job.title or "",
        "start": _start(job),
        "where": job.url or "",
        "last launch": _last(job, now),
        "its logs": job.last.url if job.last else "",
        "note": job.error or hints(words.format(where=job_rules(job.backend).where)),
        "declared in": job.owner,
    }
    lines = [f"{escape(str(job.address))}  {painted}"]
    lines += [f"  {name}: {escape(text)}" for name, text in facts.items() if text]
    lines.append("  settings:")
    settings = json.dumps(job.live or job.spec, indent=2)
    lines += [f"    {escape(line)}" for line in settings.splitlines()]
    return "\n".join(lines)


def _last(job: JobView, now: datetime) -> str:
    if job.last is None:
        return ""
    then = job.last.ended_at or job.last.started_at
    return f"{job.last.state}{f', {age(then, now)}' if then else ''}"


def _start(job: JobView) -> str:
    start = job.start
    if start.schedule:
        return escape(f"{start.schedule} {start.timezone or ''}".rstrip())
    return escape(_trigger(start.trigger)) if start.trigger else ""


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
    return canonical(dict(trigger))


def _line(row: Sequence[str], widths: Sequence[int], colour: Colour | None) -> str:
    cells = [text + " " * (wide - columns(text)) for text, wide in zip(row, widths, strict=False)]
    if colour is not None:
        cells[1] = paint(cells[1], colour, on=True)
    return "  ".join((*cells, row[-1])).rstrip()
