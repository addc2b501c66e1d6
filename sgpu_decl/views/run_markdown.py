"""One run as a comment on a pull request: how it ended and why, its ranks, where things lie.

The input is the `show` object of the public JSON contract.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime

from sgpu_decl.model.jsonable import Json
from sgpu_decl.views.markdown import code, fenced, link, prose
from sgpu_decl.views.status_text import (
    files_of,
    how_it_ended,
    links,
    mappings,
    moment,
    restart_lines,
)
from sgpu_decl.views.terminal import age, count

__all__ = ["render"]

_RANKS_SHOWN = 16
_HISTORY_SHOWN = 10


def render(run: Mapping[str, Json], *, now: datetime) -> str:
    """Return the run as GitHub Markdown, ended by a newline. `now` is what ages count from."""
    spec = json.dumps(run.get("spec"), indent=2, ensure_ascii=False)
    blocks = [
        list(_head(run)),
        list(_cause(run)),
        [f"- restart {line}" for line in restart_lines(run, now)],
        list(_ranks(mappings(run.get("ranks")))),
        list(_links(run)),
        list(_folded("spec", [fenced(spec, "json")])),
        list(_history(mappings(run.get("history")), now)),
    ]
    return "\n\n".join("\n".join(block) for block in blocks if block) + "\n"


def _head(run: Mapping[str, Json]) -> Iterator[str]:
    name = f"{run.get('name')}#{run.get('attempt')}"
    yield f"### {code(name)} {run.get('state')} {how_it_ended(run)}".rstrip()
    yield ""
    started = moment(run.get("started_at"))
    when = f"Started {started:%Y-%m-%d %H:%M:%S} UTC, on" if started else "Not started yet, on"
    yield f"{when} the backend {code(str(run.get('backend')))}."


def _cause(run: Mapping[str, Json]) -> Iterator[str]:
    cause = run.get("first_cause")
    if not isinstance(cause, Mapping):
        return
    rank = cause.get("rank")
    where = "" if rank is None else f" in rank {rank}"
    yield f"**First cause{where}:** {code(str(cause.get('summary') or cause.get('class')))}"
    together = cause.get("simultaneous")
    if isinstance(together, Sequence) and together:
        yield f"At the same time: rank {', '.join(map(str, together))}."
    trace = cause.get("traceback")
    if isinstance(trace, str) and trace.strip():
        yield ""
        yield fenced("\n".join([trace.rstrip("\n"), *files_of(cause)]))


def _ranks(ranks: Sequence[Mapping[str, Json]]) -> Iterator[str]:
    if not ranks:
        return
    table = ["| rank | node | state | exit |", "|---:|---:|---|---|"]
    for rank in ranks:
        how = rank.get("signal")
        if how is None:
            how = rank.get("exit_code")
        ended = "" if how is None else code(str(how))
        table.append(
            f"| {rank.get('rank')} | {rank.get('node_rank')} | {rank.get('state')} | {ended} |"
        )
    yield from table if len(ranks) <= _RANKS_SHOWN else _folded(count(len(ranks), "rank"), table)


def _links(run: Mapping[str, Json]) -> Iterator[str]:
    for name, target in links(run):
        yield f"- {prose(name)}: {link(target)}"


def _history(attempts: Sequence[Mapping[str, Json]], now: datetime) -> Iterator[str]:
    if len(attempts) < 2:
        return
    table = ["| attempt | state | class | restarts | ended |", "|---:|---|---|---:|---|"]
    for past in reversed(attempts[-_HISTORY_SHOWN:]):
        ended = moment(past.get("ended_at"))
        when = age(ended, now) if ended else ""
        failure = str(past.get("class") or "")
        row = (
            past.get("attempt"),
            past.get("state"),
            prose(failure),
            past.get("restart") or "",
            when,
        )
        table.append(f"| {' | '.join(map(str, row))} |")
    yield from _folded(count(len(attempts), "attempt"), table)


def _folded(title: str, lines: Sequence[str]) -> Iterator[str]:
    yield f"<details><summary>{title}</summary>"
    yield ""
    yield from lines
    yield ""
    yield "</details>"
