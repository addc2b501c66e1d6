"""One run as a comment on a pull request: how it ended and why, its ranks, its links."""

import json
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from sgpu_decl.diagnostics.amounts import duration
from sgpu_decl.model.attempt_view import AttemptView, RankView, RunHistory
from sgpu_decl.views.failure_text import blame_words
from sgpu_decl.views.launch_reason import changed_words, changes_of, commit_words, launch_reason
from sgpu_decl.views.markdown import cell, code, fenced, link, prose
from sgpu_decl.views.run_progress_text import progress_words
from sgpu_decl.views.status_text import (
    files_of,
    how_it_ended,
    links,
    restart_lines,
    usage_line,
)
from sgpu_decl.views.terminal import age, count

if TYPE_CHECKING:
    from sgpu_decl.model.attempt_details import FirstCause

_RANKS_SHOWN = 16
_HISTORY_SHOWN = 10


def render(run: RunHistory, *, now: datetime) -> str:
    """Return the run as GitHub Markdown, ended by a newline. `now` is what ages count from."""
    spec = json.dumps(run.spec.fields, indent=2, ensure_ascii=False)
    blocks = [
        list(_head(run.view)),
        list(_cause(run.view.first_cause)),
        [f"- restart {line}" for line in restart_lines(run.view, now)],
        list(_ranks(run.view.ranks)),
        [f"- {prose(name)}: {link(target)}" for name, target in links(run.view)],
        list(_folded("spec", [fenced(spec, "json")])),
        list(_history(run, now)),
    ]
    return "\n\n".join("\n".join(block) for block in blocks if block) + "\n"


def _head(view: AttemptView) -> Iterator[str]:
    yield f"### {code(str(view.ref))} {view.state_word} {how_it_ended(view)}".rstrip()
    yield ""
    started = view.started_at
    when = f"Started {started:%Y-%m-%d %H:%M:%S} UTC, on" if started else "Not started yet, on"
    yield f"{when} the backend {code(view.backend)}."
    if view.progress is not None:
        yield ""
        yield f"{prose(progress_words(view.progress, ended=not view.state.active))}."
    if line := usage_line(view):
        yield ""
        yield f"{prose(line)}."


def _cause(cause: "FirstCause | None") -> Iterator[str]:
    if cause is None:
        return
    where = "" if cause.rank is None else f" in rank {cause.rank}"
    yield f"**First cause{where}:** {code(cause.summary or str(cause.failure))}"
    if cause.simultaneous:
        yield f"At the same time: rank {', '.join(map(str, cause.simultaneous))}."
    if cause.traceback and cause.traceback.strip():
        yield ""
        yield fenced("\n".join([cause.traceback.rstrip("\n"), *files_of(cause)]))
    if cause.kind is not None and cause.explanation is not None:
        told = cause.explanation
        yield ""
        yield f"**{code(cause.kind)}** ({blame_words(told.blame)}): {prose(told.meaning)}. "
        yield f"What to do: {prose(told.next_step)}."


def _ranks(ranks: Sequence[RankView]) -> Iterator[str]:
    if not ranks:
        return
    table = ["| rank | node | state | exit |", "|---:|---:|---|---|"]
    for rank in ranks:
        how = rank.exit_code if rank.signal is None else rank.signal
        ended = "" if how is None else code(str(how))
        table.append(f"| {rank.rank} | {rank.node_rank} | {rank.state} | {ended} |")
    yield from table if len(ranks) <= _RANKS_SHOWN else _folded(count(len(ranks), "rank"), table)


def _history(run: RunHistory, now: datetime) -> Iterator[str]:
    if len(run.attempts) < 2:
        return
    changes = changes_of([attempt for attempt, _ in run.attempts])
    rows = list(enumerate(zip(run.attempts, changes, strict=True)))
    table = [
        "| attempt | state | class | restarts | ended | took | reason | changed | commit |",
        "|---:|---|---|---:|---|---|---|---|---|",
    ]
    for number, ((attempt, view), changed) in reversed(rows[-_HISTORY_SHOWN:]):
        before = run.attempts[number - 1][0] if number else None
        started, ended = view.started_at, view.ended_at
        row = (
            view.ref.number,
            view.state,
            prose(view.failure or ""),
            view.restart or "",
            age(ended, now) if ended else "",
            duration((ended - started).total_seconds()) if started and ended else "",
            cell(prose(launch_reason(attempt, run.owner, before))),
            cell(prose(changed_words(changed))),
            cell(prose(commit_words(attempt))),
        )
        table.append(f"| {' | '.join(map(str, row))} |")
    yield from _folded(count(len(rows), "attempt"), table)


def _folded(title: str, lines: Sequence[str]) -> Iterator[str]:
    yield f"<details><summary>{title}</summary>"
    yield ""
    yield from lines
    yield ""
    yield "</details>"
