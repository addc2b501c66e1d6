"""Attempts as text: the table of `status`, one run whole, and why a run failed.

The input is the `status` object of the public JSON contract, so both forms say the same.
"""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime

from sgpu_decl.model.attempt import AttemptState
from sgpu_decl.model.jsonable import Json, canonical
from sgpu_decl.views.logs_text import clean
from sgpu_decl.views.terminal import Colour, age, count, duration, escape, paint, shorten

__all__ = [
    "ending",
    "failure",
    "how_it_ended",
    "links",
    "mappings",
    "moment",
    "run_details",
    "status_table",
    "tally",
    "tracked_line",
]

_COLOURS = {
    "succeeded": Colour.GREEN,
    "failed": Colour.RED,
    "lost": Colour.RED,
    "running": Colour.CYAN,
    "cancelled": Colour.YELLOW,
}
_LONGEST_CAUSE = 72


def status_table(runs: Sequence[Mapping[str, Json]], *, now: datetime, colour: bool) -> str:
    """One line per run: name, attempt, state, backend, age, how long it took, first cause."""
    if not runs:
        return "no runs yet"
    rows = [("RUN", "STATE", "BACKEND", "STARTED", "TOOK", "")]
    for run in runs:
        started = moment(run.get("started_at"))
        rows.append(
            (
                f"{run.get('name')}#{run.get('attempt')}",
                str(run.get("state")),
                str(run.get("backend")),
                age(started, now) if started else "-",
                _took(run, now),
                _cause_line(run, _LONGEST_CAUSE),
            )
        )
    widths = [max(len(row[column]) for row in rows) for column in range(5)]
    lines = []
    for row in rows:
        cells = [text.ljust(width) for text, width in zip(row, widths, strict=False)]
        cells[1] = _painted(cells[1], colour=colour)
        lines.append("  ".join([*cells, row[5]]).rstrip())
    return "\n".join(lines)


def tally(states: Sequence[str]) -> str:
    """`6 runs: 2 running, 3 queued, 1 failed`, in the order of an attempt's life."""
    counted = [(states.count(state), state) for state in AttemptState]
    parts = ", ".join(f"{number:,} {state}" for number, state in counted if number)
    return f"{count(len(states), 'run')}: {parts}"


def ending(run: Mapping[str, Json], *, colour: bool) -> str:
    """The line that says how an attempt ended: `train#8 failed after 3 s, exit code 1: ...`."""
    state = _painted(str(run.get("state")), colour=colour)
    text = f"{run.get('name')}#{run.get('attempt')} {state} {how_it_ended(run)}".rstrip()
    cause = _cause_line(run, 200)
    return f"{text}: {cause}" if cause else text


def how_it_ended(run: Mapping[str, Json]) -> str:
    """`after 3 s, exit code 1`, or as much of it as there is to say."""
    took, code = _took(run, None), run.get("exit_code")
    words = [] if took == "-" else [f"after {took}"]
    if run.get("state") == "failed" and isinstance(code, int) and code >= 0:
        words.append(f"exit code {code}")
    return ", ".join(words)


def tracked_line(run: Mapping[str, Json]) -> str:
    """Where MLflow has an attempt; empty where it is not tracked."""
    found = dict(links(run))
    identity = found.get("mlflow.run_id")
    if identity is None:
        return ""
    experiment, store = found.get("mlflow.experiment", ""), found.get("mlflow.tracking_uri", "")
    return f"MLflow: run {identity} of the experiment {escape(experiment)} in {escape(store)}"


def failure(run: Mapping[str, Json]) -> str:
    """The traceback of the first cause, indented; empty where there is none."""
    cause = run.get("first_cause")
    if not isinstance(cause, Mapping):
        return ""
    traceback = cause.get("traceback")
    if not isinstance(traceback, str) or not traceback.strip():
        return ""
    lines = traceback.rstrip().split("\n")
    return "\n".join(f"    {clean(line)}" for line in lines)


def run_details(run: Mapping[str, Json], *, now: datetime, colour: bool) -> str:
    """One run whole: its latest attempt, ranks, first cause, links, spec and history."""
    parts = [f"{run.get('address')}\n  {ending(run, colour=colour)}"]
    if trace := failure(run):
        parts.append(trace)
    parts.append(_section("ranks", [_rank_line(rank) for rank in mappings(run.get("ranks"))]))
    parts.append(_section("links", [f"{name}: {escape(target)}" for name, target in links(run)]))
    spec = [f"{path}: {escape(value)}" for path, value in _flat(run.get("spec"))]
    parts.append(_section("spec", spec))
    history = [
        f"#{_number(past)} {past.get('state')}{_when(past, now)}"
        for past in mappings(run.get("history"))
    ]
    parts.append(_section("history", history))
    return "\n\n".join(part for part in parts if part)


def _took(run: Mapping[str, Json], now: datetime | None) -> str:
    started, ended = moment(run.get("started_at")), moment(run.get("ended_at")) or now
    return duration((ended - started).total_seconds()) if started and ended else "-"


def _when(past: Mapping[str, Json], now: datetime) -> str:
    ended = moment(past.get("ended_at"))
    return f", {age(ended, now)}" if ended else ""


def _number(past: Mapping[str, Json]) -> Json:
    return past.get("attempt", past.get("number", "?"))


def _rank_line(rank: Mapping[str, Json]) -> str:
    how = rank.get("signal") or rank.get("exit_code")
    return f"{rank.get('rank')}: {rank.get('state')}" + (f" ({how})" if how is not None else "")


def _cause_line(run: Mapping[str, Json], longest: int) -> str:
    cause = run.get("first_cause")
    if not isinstance(cause, Mapping):
        return ""
    rank = cause.get("rank")
    text = escape(str(cause.get("summary") or cause.get("class") or "").replace("\n", " "))
    if rank is not None and not text.startswith(f"rank {rank} "):
        text = f"rank {rank}: {text}"
    return shorten(text, longest)


def moment(value: Json) -> datetime | None:
    return datetime.fromisoformat(value) if isinstance(value, str) else None


def mappings(value: Json) -> list[Mapping[str, Json]]:
    if not isinstance(value, Sequence) or isinstance(value, str):
        return []
    return [item for item in value if isinstance(item, Mapping)]


def links(run: Mapping[str, Json]) -> list[tuple[str, str]]:
    """Where an attempt's things lie: `folder`, `mlflow.run_id`; what ranks are given is no link."""
    return [(name, to) for name, to in _flat(run.get("links")) if not name.startswith("mlflow.env")]


def _flat(value: Json, path: str = "") -> Iterator[tuple[str, str]]:
    """Every value inside of mappings, with its dotted path."""
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from _flat(item, f"{path}.{key}" if path else str(key))
    else:
        yield path, value if isinstance(value, str) else canonical(value)


def _section(title: str, lines: Sequence[str]) -> str:
    return "\n".join([f"{title}:", *(f"  {line}" for line in lines)]) if lines else ""


def _painted(cell: str, *, colour: bool) -> str:
    chosen = _COLOURS.get(cell.rstrip())
    return paint(cell, chosen, on=colour) if chosen else cell
