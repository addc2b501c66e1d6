"""Attempts as text: the table of `status`, one run whole, and why a run failed.."""

import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from types import MappingProxyType
from typing import TYPE_CHECKING

from sgpu_decl.diagnostics.amounts import duration
from sgpu_decl.diagnostics.masks import masked
from sgpu_decl.model.attempt import BACKOFF, AttemptState
from sgpu_decl.model.attempt_view import SKIPPED, AttemptView, RankView, RunHistory
from sgpu_decl.model.jsonable import Json, canonical
from sgpu_decl.model.state import Attempt
from sgpu_decl.views.failure_text import kind_words
from sgpu_decl.views.terminal import Colour, age, count, escape, paint, shorten
from sgpu_decl.views.tracking_text import store_notes, tracking_notes

if TYPE_CHECKING:
    from sgpu_decl.model.attempt_details import FirstCause

_COLOURS = {
    "succeeded": Colour.GREEN,
    "failed": Colour.RED,
    "lost": Colour.RED,
    "running": Colour.CYAN,
    "cancelled": Colour.YELLOW,
    SKIPPED: Colour.YELLOW,
}
_LONGEST_CAUSE = 72
_MOST_RANKS = 8  # that are listed by their numbers
_WAITS: Mapping[str, str] = MappingProxyType(
    {
        "gpus": "GPUs that are free",
        "max_parallel": "others to end: as many as `max_parallel` allows are active",
        "earlier attempts": "earlier attempts to end",
        "preflight": "the preflight of its devices",
        BACKOFF: "the backoff of a restart",
    }
)


def status_table(
    views: Sequence[AttemptView],
    *,
    now: datetime,
    colour: bool,
    hints: Callable[[str], str] = str,
) -> str:
    """One line per attempt: name, number, state, backend, age, how long it took; what it waits for,
    how often its ranks were started again, and the first cause. `hints` completes the commands in
    texts of sgpu."""
    rows = [("RUN", "STATE", "BACKEND", "STARTED", "TOOK", "")]
    for view in views:
        started = age(view.started_at, now) if view.started_at else "-"
        took, remark = _took(view, now), _remark(view, now, hints)
        rows.append((str(view.ref), view.state_word, view.backend, started, took, remark))
    widths = [max(len(row[column]) for row in rows) for column in range(5)]
    lines = []
    for row in rows:
        cells = [text.ljust(width) for text, width in zip(row, widths, strict=False)]
        cells[1] = state_text(cells[1], colour=colour)
        lines.append("  ".join([*cells, row[5]]).rstrip())
    return "\n".join(lines)


def way_out_notes(views: Sequence[AttemptView]) -> list[str]:
    """What to do about active attempts that cannot be asked: a hint for each reason."""
    return [f"hint: {hint}" for _, hint in _unanswered(views) if hint]


def unanswered_notes(views: Sequence[AttemptView], now: datetime) -> list[str]:
    """That attempts cannot be asked now, and are waited for until they can be, with hints."""
    lines = []
    for alike, hint in _unanswered(views):
        more = f" and {len(alike) - 1:,} more" if alike[1:] else ""
        lines.append(
            f"{alike[0].ref}{more} cannot be asked now, and may still run; waiting for an answer "
            f"({_as_recorded(alike[0], now)})"
        )
        lines += [f"hint: {hint}"] if hint else []
    return lines


def _unanswered(
    views: Sequence[AttemptView],
) -> list[tuple[list[AttemptView], str]]:
    """Active attempts that are unavailable for the same reason, and the next step."""
    alike: dict[str, list[AttemptView]] = {}
    for view in views:
        if view.unavailable is not None and view.state.active:
            alike.setdefault(view.unavailable, []).append(view)
    return [
        (some, escape(some[0].way_out or "") + ("; so for the others" if some[1:] else ""))
        for some in alike.values()
        if some[0].way_out
    ]


def nothing_live(gone: Sequence[Attempt]) -> str:
    """The text if no run is live; `gone` are the last attempts of runs that are gone."""
    if not gone:
        return "no runs yet"
    attempts = count(sum(attempt.ref.number for attempt in gone), "attempt")
    are = "are" if attempts != "1 attempt" else "is"
    newest = max(gone, key=lambda attempt: attempt.created_at).ref.address.label
    return (
        f"nothing is live; {attempts} of {count(len(gone), 'run')} {are} recorded: see "
        f"`sgpu state list` and `sgpu show {shlex.quote(newest)}`"
    )


def tally(states: Sequence[str]) -> str:
    """`6 runs: 2 running, 3 queued, 1 failed`, in the order of an attempt's life, as
    `AttemptView.state_word` says the states."""
    counted = [(states.count(state), state) for state in (*AttemptState, SKIPPED)]
    parts = ", ".join(f"{number:,} {state}" for number, state in counted if number)
    return f"{count(len(states), 'run')}: {parts}"


def ending(view: AttemptView, *, now: datetime, colour: bool) -> str:
    """The line that says how an attempt ended: `train#8 failed after 3 s, exit code 1: ...`."""
    how = how_it_ended(view)
    comma = "," if how and not how.startswith("after ") else ""
    text = f"{view.ref} {state_text(view.state_word, colour=colour)}{comma} {how}".rstrip()
    if view.unavailable is not None:
        return f"{text}, {_as_recorded(view, now)}"
    cause = _cause_line(view, 200)
    return f"{text}: {cause}{_others_failed(view)}" if cause else text


def how_it_ended(view: AttemptView) -> str:
    """`after 3 s, exit code 1, 2 restarts`, or as much of it as there is to say."""
    took, code = _took(view, None), view.exit_code
    words = [] if took == "-" else [f"after {took}"]
    if view.state is AttemptState.FAILED and not view.skipped and code is not None and code >= 0:
        words.append(f"exit code {code}")
    if view.restart:
        words.append(count(view.restart, "restart"))
    return ", ".join(words)


def usage_line(view: AttemptView) -> str:
    """What an attempt used that has ended, and how many GPUs would do; empty where that was not
    measured for long enough."""
    usage = view.usage
    if usage is None or view.state.active:
        return ""
    from sgpu_decl.model.run_usage import MEASURED, usage_advice, usage_words

    if usage.seconds < MEASURED:
        return ""
    # How much a run needs that failed is not known.
    advice = usage_advice(usage) if view.state is AttemptState.SUCCEEDED else ""
    return ": ".join(filter(None, [usage_words(usage), advice]))


def idle_line(view: AttemptView) -> str:
    """That an active attempt does nothing with what it holds; empty if that is not known."""
    if view.idle is None or not view.state.active:
        return ""
    from sgpu_decl.model.run_usage import idle_words

    return idle_words(view.idle)


def waits(reason: str) -> str:
    """What is waited for, in words."""
    return _WAITS.get(reason, reason)


def cause_words(rank: object, summary: str) -> str:
    """`rank 3: ValueError: no such luck`, on one line; a summary may name the rank by itself."""
    text = escape(summary.replace("\n", " "))
    return text if rank is None or text.startswith(f"rank {rank} ") else f"rank {rank}: {text}"


def waiting_words(view: AttemptView, now: datetime) -> str:
    """What an active attempt waits for; empty if it does not wait."""
    if view.waiting_for is None:
        return ""
    if view.waiting_for != BACKOFF or not view.restarts:
        return f"waits for {waits(view.waiting_for)}"
    restart = view.restarts[-1]
    seconds = max(0.0, (restart.starts_at - now).total_seconds())
    return f"restart {restart.number} in {duration(seconds)}"


def failure(view: AttemptView) -> str:
    """The traceback of the first cause, indented; empty where there is none."""
    cause = view.first_cause
    if cause is None or not (cause.traceback or "").strip():
        return ""
    from sgpu_decl.views.rank_output_text import clean

    lines = [*(cause.traceback or "").rstrip().split("\n"), *files_of(cause)]
    return "\n".join(f"    {clean(line)}" for line in lines)


def files_of(cause: "FirstCause") -> list[str]:
    """The files that a failure is about, one line each: the stacks of ranks, the run's copy of the
    code, files that were changed since, and a file that a rank did not find."""
    lines = [f"stack of rank {stack.rank}: {stack.file}" for stack in cause.stacks]
    if cause.code is not None:
        lines.append(f"the code as it ran: {cause.code.copy}")
        lines += [f"changed since then: {name}" for name in cause.code.changed]
    if cause.missing is not None and cause.missing.reason is not None:
        lines.append(f"`{cause.missing.path}` is in the project: {cause.missing.reason}")
        lines.append(f"hint: {cause.missing.hint}")
    return lines


def working_files_note(view: AttemptView) -> str:
    """A note on files that an attempt wrote into its working folder; empty if there are none."""
    files = view.working_files
    if files is None:
        return ""
    shown = ", ".join(f"`{escape(name)}`" for name in files.names)
    more = ", ..." if files.count > len(files.names) else ""
    return (
        f"{view.ref} wrote {count(files.count, 'file')} into its working folder ({shown}{more}). "
        "The next attempt does not see them: write files that you want to keep to SGPU_OUTPUT_DIR"
    )


def run_details(
    run: "RunHistory", *, now: datetime, colour: bool, hints: Callable[[str], str] = str
) -> str:
    """One run whole: its latest attempt, ranks, first cause, links, spec and history. `hints`
    completes the commands in texts of sgpu."""
    view = run.view
    # The section about restarts says when the next one is.
    waiting = waiting_words(view, now) if view.waiting_for != BACKOFF else ""
    also = filter(None, [_progress(view), wait_words(view), idle_line(view), usage_line(view)])
    parts = [
        f"{view.ref.address}\n  {ending(view, now=now, colour=colour)}"
        + (f", {waiting}" if waiting else "")
        + "".join(f"\n  {line}" for line in also)
        + "".join(f"\n  {hints(hint)}" for hint in way_out_notes([view])),
        failure(view),
        kind_words(view.first_cause, hints),
        working_files_note(view),
        _section("restarts", restart_lines(view, now)),
        _section("ranks", [_rank_line(rank) for rank in view.ranks]),
        _section("metrics", metric_lines(view)),
        _section("told", notice_lines(view)),
        _section("links", [f"{name}: {escape(target)}" for name, target in links(view)]),
        _section("tracking", list(map(hints, [*store_notes(view), *tracking_notes(view)]))),
        _section(
            "spec",
            [f"{path}: {escape(text)}" for path, text in _flat(masked(run.spec.fields, ""))],
        ),
        _section("history", _history(run, now)),
    ]
    return "\n\n".join(filter(None, parts))


def metric_lines(view: AttemptView) -> list[str]:
    """The metrics that an attempt left in its output, one line each."""
    lines = [f"{escape(name)}: {value:.6g}" for name, value in view.metrics.items()]
    return [*lines, f"problem: {escape(view.metrics_problem)}"] if view.metrics_problem else lines


def notice_lines(view: AttemptView) -> list[str]:
    """Who was told of the end, one line each."""
    return [
        f"{one.way}: {escape(one.summary)}"
        + (f", after {count(one.tries, 'try', 'tries')}" if one.tries > 1 else "")
        for one in view.notices
    ]


def restart_lines(view: AttemptView, now: datetime) -> list[str]:
    """One line for each restart that is known: when, and why."""
    lines = []
    for restart in view.restarts:
        seconds = (restart.starts_at - now).total_seconds()
        when = f"in {duration(seconds)}" if seconds > 0 else age(restart.starts_at, now)
        why = cause_words(restart.rank, restart.summary)
        named = ", ".join(filter(None, [restart.failure, restart.kind]))
        lines.append(f"{restart.number}: {when}, after {why} ({escape(named)})")
    return lines


def dashboard_words(view: AttemptView) -> str:
    """Where the dashboard of a Ray cluster is; empty if there is none. It listens on loopback."""
    if view.ray is None or view.ray.dashboard is None:
        return ""
    host = f" on {escape(view.ray.host)}" if view.ray.host else ""
    return f"Ray dashboard {escape(view.ray.dashboard)}{host}"


def supervision_words(view: AttemptView, now: datetime) -> str:
    """What is wrong with the supervision of an attempt, and the command to use; empty if nothing
    is wrong."""
    cancel = f"`sgpu cancel {shlex.quote(view.ref.address.label)}`"
    since, processes = view.not_responding_since, view.processes_left
    if since is not None:
        shown = f"{since:%H:%M:%S} UTC, {age(since, now)}"
        return f"not responding since {shown}: {cancel} ends it by force"
    if not processes:
        return ""
    pids = ", ".join(map(str, processes[:5])) + (", ..." if len(processes) > 5 else "")
    amount = count(len(processes), "process", "processes")
    verb, object_ = ("is", "it") if len(processes) == 1 else ("are", "them")
    return f"{amount} {verb} left ({pids}): {cancel} stops {object_}"


def wait_words(view: AttemptView) -> str:
    """For whom ranks wait; empty if they do not, or nobody knows."""
    return escape(view.rank_wait.summary) if view.state.active and view.rank_wait else ""


def links(view: AttemptView) -> list[tuple[str, str]]:
    """Where an attempt's things are: `folder`, `mlflow.run_id`, the dashboard of its Ray cluster;
    what ranks are given is no link."""
    pairs = [(name, to) for name, to in _flat(view.links) if not name.startswith("mlflow.env")]
    if view.ray is not None:
        cluster = {
            "dashboard": view.ray.dashboard,
            "token_file": view.ray.token_file,
            "host": view.ray.host,
        }
        pairs += [(f"ray.{name}", to) for name, to in cluster.items() if to is not None]
    return pairs


def _took(view: AttemptView, now: datetime | None) -> str:
    seconds = view.seconds(now)
    return "-" if seconds is None else duration(seconds)


def _as_recorded(view: AttemptView, now: datetime) -> str:
    when = f" {age(view.unknown_since, now)}" if view.unknown_since is not None else ""
    how = f"as last recorded{when}"
    if view.hidden_from is not None:
        how = f"not visible to `{escape(view.hidden_from)}`, recorded{when}"
    over = ", and it must have ended; its result is not known" if view.overdue else ""
    return f"{how}{over}: {escape(view.unavailable or '')}"


def _remark(view: AttemptView, now: datetime, hints: Callable[[str], str]) -> str:
    if view.unavailable is not None:
        return _as_recorded(view, now)
    if words := supervision_words(view, now):
        return hints(words)
    if waiting := waiting_words(view, now):
        causes = view.restarts[-1:] if view.waiting_for == BACKOFF else ()
        why = [cause_words(restart.rank, restart.summary) for restart in causes]
        return shorten("; ".join([waiting, *why]), _LONGEST_CAUSE)
    restarts = count(view.restart, "restart") if view.restart else ""
    cause = _cause_line(view, _LONGEST_CAUSE)
    going = _progress(view) if view.state.active else ""
    waits = shorten(wait_words(view), _LONGEST_CAUSE)
    parts = [restarts, cause, waits, going, idle_line(view), dashboard_words(view)]
    return "; ".join(filter(None, parts))


def _progress(view: AttemptView) -> str:
    if view.progress is None:
        return ""
    from sgpu_decl.views.run_progress_text import progress_words

    return progress_words(view.progress, ended=not view.state.active)


def _history(run: "RunHistory", now: datetime) -> list[str]:
    from sgpu_decl.views.launch_reason import changed_words, changes_of, commit_words, launch_reason

    changes = changes_of([attempt for attempt, _ in run.attempts])
    lines: list[str] = []
    before = None
    for (attempt, past), changed in zip(run.attempts, changes, strict=True):
        why = {
            "reason": launch_reason(attempt, run.owner, before),
            "changed": changed_words(changed),
            "commit": commit_words(attempt),
        }
        said = [f"{name}: {text}" for name, text in why.items() if text]
        lines.append("; ".join([_history_line(past, now), *said]))
        before = attempt
    return lines


def _history_line(past: AttemptView, now: datetime) -> str:
    when = age(past.ended_at, now) if past.ended_at else ""
    took = _took(past, None)
    restarts = count(past.restart, "restart") if past.restart else ""
    parts = [f"#{past.ref.number} {past.state_word}", when, "" if took == "-" else f"took {took}"]
    return ", ".join(filter(None, [*parts, restarts]))


def _rank_line(rank: RankView) -> str:
    how = rank.signal or rank.exit_code
    line = f"{rank.rank}: {rank.state}" + (f" ({how})" if how is not None else "")
    if rank.dropped_bytes is not None:
        line += f", {rank.dropped_bytes:,} bytes of its output were dropped: the disk was full"
    return line


def _others_failed(view: AttemptView) -> str:
    """Which ranks failed by themselves beside the first one."""
    first = view.first_cause.rank if view.first_cause is not None else None
    ranks = [rank.rank for rank in view.ranks if rank.state == "failed" and rank.rank != first]
    if first is None or not ranks:
        return ""
    named = ", ".join(map(str, ranks[:_MOST_RANKS]))
    more = f" and {len(ranks) - _MOST_RANKS:,} more" if len(ranks) > _MOST_RANKS else ""
    return f" ({count(len(ranks), 'other rank')} failed, too: {named}{more})"


def _cause_line(view: AttemptView, longest: int) -> str:
    cause = view.first_cause
    if cause is None:
        return ""
    kind = f"[{escape(cause.kind)}] " if cause.kind is not None else ""
    return shorten(kind + cause_words(cause.rank, cause.summary or cause.failure or ""), longest)


def _flat(value: Json, path: str = "") -> Iterator[tuple[str, str]]:
    """Every value inside of mappings, with its dotted path."""
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from _flat(item, f"{path}.{key}" if path else str(key))
    else:
        yield path, value if isinstance(value, str) else canonical(value)


def _section(title: str, lines: Sequence[str]) -> str:
    return "\n".join([f"{title}:", *(f"  {line}" for line in lines)]) if lines else ""


def state_text(cell: str, *, colour: bool) -> str:
    """A state in its colour; spaces may follow it."""
    paint_colour = _COLOURS.get(cell.rstrip())
    return paint(cell, paint_colour, on=colour) if paint_colour else cell
