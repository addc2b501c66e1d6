"""`sgpu logs`."""

import sys
import time
from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import click

from sgpu_decl.cli.completed_by import completed_by
from sgpu_decl.cli.options import (
    ProjectSource,
    output_option,
    project_options,
    rank_count,
    rank_option,
    read_duration,
    read_ranks,
    refuse_ranks,
    whole,
)
from sgpu_decl.cli.run_names import open_named
from sgpu_decl.cli.terminal_output import answer, answer_exactly, note, now, show, write_line
from sgpu_decl.diagnostics.masks import mask
from sgpu_decl.errors import NotFound
from sgpu_decl.model.attempt import AttemptRef
from sgpu_decl.model.attempt_view import AttemptView
from sgpu_decl.model.rank_output import LogLines

if TYPE_CHECKING:
    from sgpu_decl.api import Session
    from sgpu_decl.model.jsonable import Json


@click.command("logs")
@click.argument(
    "name", required=False, metavar="[NAME|FILE]", shell_complete=completed_by("runs", "files")
)
@project_options
@click.option("-f", "--follow", is_flag=True, help="Show new output until the run has ended.")
@rank_option(default=None, help="The rank to show: by default the one that failed, else 0.")
@click.option(
    "--restart",
    callback=whole(0),
    metavar="N",
    help="Show only restart N; 0 is the first start.",
)
@click.option(
    "--tail", callback=whole(0), metavar="N", help="Show only the last N lines of each run."
)
@click.option("--since", metavar="D", help="Show only lines of the last `10m`, `2h` and so on.")
@output_option()
def command(
    *,
    source: ProjectSource,
    name: str | None,
    follow: bool,
    rank: str | None,
    restart: int | None,
    tail: int | None,
    since: str | None,
    output: str,
) -> int:
    """Show what the ranks of a run wrote.

    NAME is `train`, `run.train` or `train#8`; a glob shows several runs. FILE means all its runs.
    Without NAME and FILE, logs shows the latest run. `job.nightly` shows the last lines and the
    results of each task of the last launch of that job, once it has ended.

    Lines of ranks with an `entrypoint` are sorted by time. Colours stay, and other control
    characters are escaped. Values of the run's secrets are hidden if this machine can resolve
    them. With -f and --tail, logs shows the last N lines of each run, and then new lines.
    """
    from sgpu_decl.views.rank_output_text import clean_lines, prefix

    ranks = read_ranks(rank or "0")
    if follow and output == "json":
        raise click.UsageError("`-f` has no end, and `-o json` is one object: use one of them")
    since_ns = None if since is None else time.time_ns() - int(read_duration(since) * 1e9)
    session, names = open_named(source, (name,) if name else ())
    if name and session.jobs.names_job(name):
        if follow or rank or restart is not None or tail is not None or since is not None:
            raise click.UsageError("a job has several tasks: leave out the options for ranks")
        return _job_logs(session, name, output)
    refs = session.runs.find(*names)
    views = session.runs.describe(refs)
    counts = [
        len(view.ranks) or rank_count(session.runs.record(view.ref).inputs.spec) or 0
        for view in views
    ]
    refuse_ranks(ranks, [count for count in counts if count])
    _check_restart(views, restart)
    warn_of_secrets(session, refs)
    several = len(refs) > 1 or ranks is None
    shown_ranks = {view.ref: _failed_rank(view) if rank is None else ranks for view in views}
    if not several and shown_ranks[refs[0]] != ranks:
        (failed,) = _failed_rank(views[0])
        note(f"this is the output of rank {failed}, which failed first; `--rank 0` shows rank 0")
    if since_ns is not None:  # a run that had ended before wrote nothing since
        refs = tuple(view.ref for view in views if not _ended_before(view, since_ns))
    if follow and any(view.state.active for view in views):
        _say_unfollowed(session, views)
        items: Iterator[object] = _noting_silence(
            session.runs.follow(refs, ranks=ranks, restart=restart)
        )
    else:
        items = (
            log
            for ref in refs
            for log in session.runs.logs(
                ref, ranks=shown_ranks.get(ref, ranks), follow=False, restart=restart
            )
        )
    untimed: set[str] = set()
    shown = newest_lines(written_since(items, since_ns, untimed), tail)
    if output == "json":
        lines: list[Json] = [
            {"run": str(log.ref), "rank": log.rank, "stream": log.stream, "text": mask(text)}
            for log in shown
            for text in log.lines
        ]
        answer_exactly({"lines": lines})
    else:
        for log in shown:
            before = prefix(log.ref.address.label, log.rank) if several else ""
            write_line(sys.stdout, clean_lines(log.text, before))
    if untimed:
        named = ", ".join(f"`{ref}`" for ref in sorted(untimed))
        note(f"note: {named} wrote lines without a time: `--since` does not filter them")
    return 0


def _job_logs(session: "Session", name: str, output: str) -> int:
    from sgpu_decl.views.job_launch_text import launch_fields, launch_lines, task_line

    last = session.jobs.last_launch(name)
    if last is None:
        raise NotFound(f"`{name}` was never launched", hint=f"`sgpu start {name}` launches it")
    if output == "json":
        answer(launch_fields(last))
        return 0
    note(f"{last.address}: launch {last.launch.id} {last.launch.state}, {last.launch.url}")
    for task in last.tasks:
        note(task_line(task))
    for line in launch_lines(last):
        show(line)
    return 0


def warn_of_secrets(session: "Session", refs: "Sequence[AttemptRef]") -> None:
    """Name the secrets that cannot be hidden in what ranks wrote."""
    if missing := session.runs.unhidden(refs):
        named = ", ".join(f"`{reference}`" for reference in missing)
        note(f"warning: {named} cannot be resolved here: if a rank wrote the value, it is shown")


def _say_unfollowed(session: "Session", views: Sequence[AttemptView]) -> None:
    """Say which runs cannot be followed, since they cannot be asked from here. If these are all
    that is active, that is an error."""
    from sgpu_decl.views.status_text import ending, way_out_notes

    active = [view for view in views if view.state.active]
    silent = [view for view in active if view.unavailable is not None]
    if len(silent) == len(active):
        session.runs.require_here(silent[0].ref)
    for line in (
        *(ending(view, now=now(), colour=False) for view in silent),
        *way_out_notes(silent),
    ):
        note(line)


def _failed_rank(view: AttemptView) -> tuple[int]:
    """The rank that failed first; 0 where there is none."""
    first = view.first_cause.rank if view.first_cause is not None else None
    return (first or 0,)


def _ended_before(view: AttemptView, time_ns: int) -> bool:
    ended = view.ended_at
    return not view.state.active and ended is not None and ended.timestamp() * 1e9 < time_ns


def _check_restart(views: Sequence[AttemptView], restart: int | None) -> None:
    """Refuse a restart that has not happened and cannot happen any more."""
    if restart is None or any(view.state.active for view in views):
        return
    newest = max(view.restart for view in views)
    if restart > newest:
        raise NotFound(
            f"there is no restart {restart}: "
            + (f"the newest is {newest}" if newest else "ranks were started once, as restart 0"),
            hint="leave out `--restart` to see what all of them wrote",
        )


def written_since(
    items: Iterable[object], since_ns: int | None, untimed: set[str]
) -> Iterator[object]:
    """Leave out lines that were written before `since_ns`. Lines without a time stay, and
    `untimed` gets the runs that wrote some."""
    for item in items:
        if since_ns is not None and isinstance(item, LogLines):
            if item.time_ns is None:
                untimed.add(str(item.ref))
            elif item.time_ns < since_ns:
                continue
        yield item


def _noting_silence(items: Iterable[object]) -> Iterator[object]:
    """Say when a run is not known any more, and when it is again."""
    from sgpu_decl.views.progress_text import silence_line

    silent: set[AttemptRef] = set()
    for item in items:
        if isinstance(item, AttemptView) and (item.unavailable is None) == (item.ref in silent):
            silent ^= {item.ref}
            note(silence_line(item, now=now()))
        yield item


def newest_lines(items: Iterable[object], tail: int | None) -> Iterator[LogLines]:
    """Of the lines of each run that are there at the beginning, the last `tail`; then all that
    follow. How a run stands ends the beginning: every log was read once by then. `None` says
    nothing: it comes between two logs that are far away."""
    kept: defaultdict[AttemptRef, deque[LogLines]] = defaultdict(deque)
    counts, reading = Counter[AttemptRef](), iter(items)
    for item in reading if tail is not None else ():
        if item is None:
            continue
        if not isinstance(item, LogLines):
            break
        ref, newest = item.ref, kept[item.ref]
        newest.append(item)
        counts[ref] += len(item.lines)
        while newest and counts[ref] - len(newest[0].lines) >= (tail or 0):
            counts[ref] -= len(newest.popleft().lines)
    for ref, newest in kept.items():
        if newest and tail is not None and counts[ref] > tail:
            first = newest.popleft()
            text = "\n".join(first.lines[counts[ref] - tail :])
            newest.appendleft(replace(first, text=text))
        yield from newest
    yield from (item for item in reading if isinstance(item, LogLines))
