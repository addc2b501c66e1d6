"""Attempts as text: the table of `status`, one run whole, and why a run failed.

The input is the `status` object of the public JSON contract, so both forms say the same.
"""

import shlex
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from types import MappingProxyType
from typing import TYPE_CHECKING

from sgpu_decl.diagnostics.durations import duration
from sgpu_decl.model.attempt import BACKOFF, AttemptState
from sgpu_decl.model.jsonable import Json, canonical
from sgpu_decl.model.state import Attempt
from sgpu_decl.views.terminal import Colour, age, count, escape, paint, shorten
from sgpu_decl.views.tracking_text import tracking_notes

if TYPE_CHECKING:
    from sgpu_decl.model.attempt_details import Restart

__all__ = [
    "cause_words",
    "ending",
    "failure",
    "files_of",
    "how_it_ended",
    "links",
    "mappings",
    "moment",
    "nothing_live",
    "restart_lines",
    "run_details",
    "status_table",
    "supervision_words",
    "tally",
    "waits",
    "working_files_note",
]

_COLOURS = {
    "succeeded": Colour.GREEN,
    "failed": Colour.RED,
    "lost": Colour.RED,
    "running": Colour.CYAN,
    "cancelled": Colour.YELLOW,
}
_LONGEST_CAUSE = 72
_WAITS: Mapping[str, str] = MappingProxyType(
    {
        "gpus": "GPUs that are free",
        "max_parallel": "others to end: as many as `max_parallel` allows are active",
        "earlier attempts": "earlier attempts to end",
        BACKOFF: "the backoff of a restart",
    }
)


def status_table(runs: Sequence[Mapping[str, Json]], *, now: datetime, colour: bool) -> str:
    """One line per run: name, attempt, state, backend, age, how long it took; what it waits for,
    how often its ranks were started again, and the first cause."""
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
                _remark(run, now),
            )
        )
    widths = [max(len(row[column]) for row in rows) for column in range(5)]
    lines = []
    for row in rows:
        cells = [text.ljust(width) for text, width in zip(row, widths, strict=False)]
        cells[1] = _painted(cells[1], colour=colour)
        lines.append("  ".join([*cells, row[5]]).rstrip())
    return "\n".join(lines)


def nothing_live(gone: Sequence[Attempt]) -> str:
    """The text if no run is live; `gone` are the last attempts of runs that are gone."""
    if not gone:
        return "no runs yet"
    attempts = count(sum(attempt.ref.number for attempt in gone), "attempt")
    are = "are" if attempts != "1 attempt" else "is"
    return (
        f"nothing is live; {attempts} of {count(len(gone), 'run')} {are} recorded: see "
        "`sgpu state list` and `sgpu show NAME`"
    )


def tally(states: Sequence[str]) -> str:
    """`6 runs: 2 running, 3 queued, 1 failed`, in the order of an attempt's life."""
    counted = [(states.count(state), state) for state in AttemptState]
    parts = ", ".join(f"{number:,} {state}" for number, state in counted if number)
    return f"{count(len(states), 'run')}: {parts}"


def ending(run: Mapping[str, Json], *, colour: bool) -> str:
    """The line that says how an attempt ended: `train#8 failed after 3 s, exit code 1: ...`."""
    state = _painted(str(run.get("state")), colour=colour)
    how = how_it_ended(run)
    comma = "," if how and not how.startswith("after ") else ""
    text = f"{run.get('name')}#{run.get('attempt')} {state}{comma} {how}".rstrip()
    cause = _cause_line(run, 200)
    return f"{text}: {cause}" if cause else text


def how_it_ended(run: Mapping[str, Json]) -> str:
    """`after 3 s, exit code 1, 2 restarts`, or as much of it as there is to say."""
    took, code = _took(run, None), run.get("exit_code")
    words = [] if took == "-" else [f"after {took}"]
    if run.get("state") == "failed" and isinstance(code, int) and code >= 0:
        words.append(f"exit code {code}")
    if restarts := _restarts(run):
        words.append(restarts)
    return ", ".join(words)


def waits(reason: str) -> str:
    """What is waited for, in words."""
    return _WAITS.get(reason, reason)


def cause_words(rank: object, summary: str) -> str:
    """`rank 3: ValueError: no such luck`, on one line; a summary may name the rank by itself."""
    text = escape(summary.replace("\n", " "))
    return text if rank is None or text.startswith(f"rank {rank} ") else f"rank {rank}: {text}"


def waiting_words(run: Mapping[str, Json], now: datetime) -> str:
    """What an active attempt waits for; empty if it does not wait."""
    reason = run.get("waiting_for")
    if not isinstance(reason, str):
        return ""
    restarts = _restarts_of(run)
    if reason != BACKOFF or not restarts:
        return f"waits for {waits(reason)}"
    seconds = max(0.0, (restarts[-1].starts_at - now).total_seconds())
    return f"restart {restarts[-1].number} in {duration(seconds)}"


def failure(run: Mapping[str, Json]) -> str:
    """The traceback of the first cause, indented; empty where there is none."""
    cause = run.get("first_cause")
    if not isinstance(cause, Mapping):
        return ""
    traceback = cause.get("traceback")
    if not isinstance(traceback, str) or not traceback.strip():
        return ""
    from sgpu_decl.views.logs_text import clean

    lines = [*traceback.rstrip().split("\n"), *files_of(cause)]
    return "\n".join(f"    {clean(line)}" for line in lines)


def files_of(cause: Mapping[str, Json]) -> list[str]:
    """The files that a failure is about, one line each: the stacks of ranks, the run's copy of the
    code, files that were changed since, and a file that a rank did not find."""
    lines = [
        f"stack of rank {stack['rank']}: {stack['file']}" for stack in mappings(cause.get("stacks"))
    ]
    code = cause.get("code")
    if isinstance(code, Mapping):
        lines.append(f"the code as it ran: {code['copy']}")
        changed = code["changed"]
        if isinstance(changed, Sequence):
            lines += [f"changed since then: {name}" for name in changed]
    missing = cause.get("missing")
    if isinstance(missing, Mapping):
        lines.append(f"`{missing['path']}` is in the project: {missing['reason']}")
        lines.append(f"hint: {missing['hint']}")
    return lines


def working_files_note(run: Mapping[str, Json]) -> str:
    """A note on files that an attempt wrote into its working folder; empty if there are none."""
    files = run.get("working_files")
    if not isinstance(files, Mapping):
        return ""
    names, number = files.get("names"), files.get("count")
    if not isinstance(names, Sequence) or not isinstance(number, int):
        return ""
    shown = ", ".join(f"`{escape(str(name))}`" for name in names)
    return (
        f"{run.get('name')}#{run.get('attempt')} wrote {count(number, 'file')} into its working "
        f"folder ({shown}{', ...' if number > len(names) else ''}). The next attempt does not see "
        "them: write files that you want to keep to SGPU_OUTPUT_DIR"
    )


def run_details(run: Mapping[str, Json], *, now: datetime, colour: bool) -> str:
    """One run whole: its latest attempt, ranks, first cause, links, spec and history."""
    parts = [f"{run.get('address')}\n  {ending(run, colour=colour)}"]
    if trace := failure(run):
        parts.append(trace)
    if note := working_files_note(run):
        parts.append(note)
    parts.append(_section("restarts", restart_lines(run, now)))
    parts.append(_section("ranks", [_rank_line(rank) for rank in mappings(run.get("ranks"))]))
    parts.append(_section("links", [f"{name}: {escape(target)}" for name, target in links(run)]))
    parts.append(_section("tracking", tracking_notes(run)))
    spec = [f"{path}: {escape(value)}" for path, value in _flat(run.get("spec"))]
    parts.append(_section("spec", spec))
    history = [
        ", ".join(filter(None, [_standing(past), _when(past, now), _restarts(past)]))
        for past in mappings(run.get("history"))
    ]
    parts.append(_section("history", history))
    return "\n\n".join(part for part in parts if part)


def _took(run: Mapping[str, Json], now: datetime | None) -> str:
    started, ended = moment(run.get("started_at")), moment(run.get("ended_at")) or now
    return duration((ended - started).total_seconds()) if started and ended else "-"


def restart_lines(run: Mapping[str, Json], now: datetime) -> list[str]:
    """One line for each restart that is known: when, and why."""
    lines = []
    for restart in _restarts_of(run):
        seconds = (restart.starts_at - now).total_seconds()
        when = f"in {duration(seconds)}" if seconds > 0 else age(restart.starts_at, now)
        why = cause_words(restart.rank, restart.summary)
        lines.append(f"{restart.number}: {when}, after {why} ({restart.failure})")
    return lines


def _restarts(run: Mapping[str, Json]) -> str:
    number = run.get("restart")
    return count(number, "restart") if isinstance(number, int) and number > 0 else ""


def _remark(run: Mapping[str, Json], now: datetime) -> str:
    if isinstance(unavailable := run.get("unavailable"), str):
        return f"as last recorded: {escape(unavailable)}"
    if words := supervision_words(run, now):
        return words
    if waiting := waiting_words(run, now):
        cause = _restarts_of(run)[-1:] if run.get("waiting_for") == BACKOFF else ()
        why = [cause_words(restart.rank, restart.summary) for restart in cause]
        return shorten("; ".join([waiting, *why]), _LONGEST_CAUSE)
    return "; ".join(filter(None, [_restarts(run), _cause_line(run, _LONGEST_CAUSE)]))


def supervision_words(run: Mapping[str, Json], now: datetime) -> str:
    """What is wrong with the supervision of an attempt, and the command to use; empty if nothing
    is wrong."""
    cancel = f"`sgpu cancel {shlex.quote(str(run.get('name')))}`"
    since, processes = moment(run.get("not_responding_since")), run.get("processes_left")
    if since is not None:
        shown = f"{since:%H:%M:%S} UTC, {age(since, now)}"
        return f"not responding since {shown}: {cancel} ends it by force"
    if isinstance(processes, list) and processes:
        pids = ", ".join(map(str, processes[:5])) + (", ..." if len(processes) > 5 else "")
        amount = count(len(processes), "process", "processes")
        verb, object_ = ("is", "it") if len(processes) == 1 else ("are", "them")
        return f"{amount} {verb} left ({pids}): {cancel} stops {object_}"
    return ""


def _standing(past: Mapping[str, Json]) -> str:
    return f"#{past.get('attempt')} {past.get('state')}"


def _when(past: Mapping[str, Json], now: datetime) -> str:
    ended = moment(past.get("ended_at"))
    return age(ended, now) if ended else ""


def _rank_line(rank: Mapping[str, Json]) -> str:
    how = rank.get("signal") or rank.get("exit_code")
    line = f"{rank.get('rank')}: {rank.get('state')}" + (f" ({how})" if how is not None else "")
    dropped = rank.get("dropped_bytes")
    if isinstance(dropped, int):
        line += f", {dropped:,} bytes of its output were dropped: the disk was full"
    return line


def _cause_line(run: Mapping[str, Json], longest: int) -> str:
    cause = run.get("first_cause")
    if not isinstance(cause, Mapping):
        return ""
    summary = str(cause.get("summary") or cause.get("class") or "")
    return shorten(cause_words(cause.get("rank"), summary), longest)


def _restarts_of(run: Mapping[str, Json]) -> "tuple[Restart, ...]":
    if not run.get("restarts"):
        return ()
    from sgpu_decl.model.attempt_details import restarts_in

    return restarts_in(run)


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
    paint_colour = _COLOURS.get(cell.rstrip())
    return paint(cell, paint_colour, on=colour) if paint_colour else cell
