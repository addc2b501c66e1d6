"""`sgpu status`."""

import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING

import click

from sgpu_decl.cli.options import Where, output_option, where_options
from sgpu_decl.cli.showing import answer, note, now, takes_colour

if TYPE_CHECKING:
    from sgpu_decl.api import Session
    from sgpu_decl.model.attempt import AttemptRef
    from sgpu_decl.model.jsonable import Json
    from sgpu_decl.model.state import Resource

__all__ = ["command"]


@click.command("status")
@click.argument("names", nargs=-1, metavar="[NAME]...")
@where_options
@output_option()
def command(*, where: Where, names: tuple[str, ...], output: str) -> int:
    """Show the latest attempt of every run, and every job; or those named (addresses, names,
    globs)."""
    session = where.recorded()
    refs, chosen = _named(session, names)
    runs, jobs = session.runs.describe(refs), session.describe_jobs(chosen)
    if output == "json":
        answer({"runs": runs, "jobs": jobs} if jobs else {"runs": runs})
        return 0
    from sgpu_decl.views.jobs_text import job_table
    from sgpu_decl.views.status_text import status_table

    colour = takes_colour(sys.stdout)
    if runs or not jobs:
        click.echo(status_table(runs, now=now(), colour=colour))
    if not (runs or jobs):
        _say_where_else(session)
    if jobs:
        click.echo(("\n" if runs else "") + job_table(jobs, now=now(), colour=colour))
    _say_where_tracked(session, runs)
    return 0


def _named(
    session: "Session", names: tuple[str, ...]
) -> "tuple[tuple[AttemptRef, ...], list[Resource]]":
    """The runs and the jobs that are meant: a name that is no run's may be a job's."""
    if not names:
        return session.runs.current(), session.jobs()
    of_jobs = [name for name in names if session.names_job(name)]
    of_runs = [name for name in names if name not in of_jobs]
    return session.runs.find(*of_runs), session.jobs(*of_jobs) if of_jobs else []


def _say_where_else(session: "Session") -> None:
    from sgpu_decl.applying.neighbouring import elsewhere

    if (hint := elsewhere(session.state_dir)) is not None:
        note(f"hint: {hint}")


def _say_where_tracked(session: "Session", runs: "list[dict[str, Json]]") -> None:
    from sgpu_decl.tracking.locating import ui_command

    uris = set()
    for run in runs:
        links = run.get("links")
        tracked = links.get("mlflow") if isinstance(links, Mapping) else None
        uri = tracked.get("tracking_uri") if isinstance(tracked, Mapping) else None
        if isinstance(uri, str):
            uris.add(uri)
    for uri in sorted(uris):
        shown = ui_command(uri, home=session.state_dir.parent)
        note(f"metrics: {shown or uri}")
