"""`sgpu cancel`."""

from typing import TYPE_CHECKING

import click

from sgpu_decl.cli.completed_by import completed_by
from sgpu_decl.cli.interrupts import Signals
from sgpu_decl.cli.options import ProjectSource, output_option, project_options, read_duration
from sgpu_decl.cli.run_endings import await_stops
from sgpu_decl.cli.run_names import open_named
from sgpu_decl.cli.terminal_output import answer, note
from sgpu_decl.errors import NotFound
from sgpu_decl.model.attempt import AttemptState
from sgpu_decl.views.status_json import status_objects
from sgpu_decl.views.terminal import count

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sgpu_decl.api import Session
    from sgpu_decl.model.attempt import AttemptRef


@click.command("cancel")
@click.argument(
    "names",
    nargs=-1,
    metavar="[NAME|FILE]...",
    shell_complete=completed_by("runs", "files"),
)
@project_options
@click.option(
    "--force-after",
    metavar="D",
    help="Kill a run whose supervisor has been silent for this long (default: 30s). On Ray, the "
    "time starts when the grace period ends (default and minimum: 15s).",
)
@click.option("--no-wait", is_flag=True, help="Return before the runs have ended.")
@output_option()
def command(
    *,
    source: ProjectSource,
    names: tuple[str, ...],
    force_after: str | None,
    no_wait: bool,
    output: str,
) -> int:
    """Stop runs: their ranks get SIGTERM, and SIGKILL after their grace.

    NAME is `train`, `run.train`, `train#8` or a glob. A glob does not match destroyed runs. FILE
    means all its runs. Without NAME and FILE, cancel stops the only active run. `job.nightly` stops
    the active launches of that job, and returns at once.

    A run that has ended does not change. If processes of a lost run are left, they are stopped. If
    the supervisor of a run does not answer, the run is ended without it. Ctrl-C ends only the
    waiting: the runs are stopped all the same.

    Exit codes: 0 ok, 1 error, 130 interrupted before the runs had ended.
    """
    if no_wait and force_after is not None:
        raise click.UsageError("`--no-wait` ends no run by force: leave out `--force-after`")
    patience = read_duration(force_after) if force_after is not None else None
    if names:
        session, names = open_named(source, names)
        if jobs := [name for name in names if session.jobs.names_job(name)]:
            if len(jobs) < len(names) or force_after is not None:
                raise click.UsageError("`--force-after` and the names of runs do not go with jobs")
            return _cancel_jobs(session, jobs, output)
        refs = session.runs.find_active(*names)
    else:
        session = source.recorded()
        refs = (_only_active(session),)
    with Signals() as signals:
        views_before = session.runs.statuses(refs)
        active = [ref for ref, view in views_before.items() if view.state.active]
        session.runs.cancel(*active)
        for ref in active:
            note(f"{ref} asked to stop")
        for ref, view in views_before.items():
            state = view.state
            if state is AttemptState.LOST and (number := session.runs.sweep(ref)):
                note(
                    f"{ref} was lost: {count(number, 'process', 'processes')} that it left stopped"
                )
        if not no_wait:
            await_stops(session, refs, signals, patience)
    views = session.runs.describe(refs)
    if output == "json":
        answer({"runs": status_objects(views)})
    else:
        for view in views:
            prefix = "" if view.ref in active else "had ended already: "
            note(f"{view.ref} {prefix}{view.state_word}")
    return 0


def _cancel_jobs(session: "Session", names: "Sequence[str]", output: str) -> int:
    found = [session.jobs.cancel(name) for name in names]
    if output == "json":
        answer({"runs": [], "jobs": [str(job.address) for job, active in found if active]})
    else:
        for job, active in found:
            note(f"{job.address} {'asked to stop' if active else 'has no active launch'}")
    return 0


def _only_active(session: "Session") -> "AttemptRef":
    """The run to stop if none is named. Of several, none is guessed."""
    active = session.runs.active()
    if not active:
        raise NotFound("no run is active", hint="`sgpu status` shows how the runs ended")
    if len(active) > 1:
        shown = ", ".join(f"`{ref}`" for ref in active[:5])
        more = f" and {len(active) - 5} more" if len(active) > 5 else ""
        raise NotFound(
            f"{len(active)} runs are active: {shown}{more}",
            hint="name one of them, or all of them: `sgpu cancel '*'`",
            code="ambiguous",
        )
    note(f"`{active[0]}` is the only active run")
    return active[0]
