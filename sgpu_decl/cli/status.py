"""`sgpu status`."""

import os
import platform
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import click

from sgpu_decl.cli.completed_by import completed_by
from sgpu_decl.cli.next_steps import complete
from sgpu_decl.cli.options import ProjectSource, offline_option, output_option, project_options
from sgpu_decl.cli.run_names import is_path, open_named
from sgpu_decl.cli.terminal_output import (
    answer,
    note,
    now,
    show,
    show_lines,
    takes_colour,
    takes_keys,
    terminal_width,
)
from sgpu_decl.errors import Usage
from sgpu_decl.views.status_json import status_objects
from sgpu_decl.views.status_text import nothing_live, status_table, way_out_notes
from sgpu_decl.views.tracking_text import tracking_notes

if TYPE_CHECKING:
    from sgpu_decl.api import Session
    from sgpu_decl.model.attempt import AttemptRef
    from sgpu_decl.model.attempt_view import AttemptView
    from sgpu_decl.model.jsonable import Json
    from sgpu_decl.model.state import Resource


@click.command("status")
@click.argument(
    "names", nargs=-1, metavar="[NAME|FILE]...", shell_complete=completed_by("runs", "files")
)
@project_options
@offline_option
@click.option(
    "-w", "--watch", is_flag=True, help="Show runs again each second until all have ended."
)
@output_option()
def command(*, source: ProjectSource, names: tuple[str, ...], watch: bool, output: str) -> int:
    """Show the latest attempt of every run, and every job.

    With NAME, show only these. NAME is `train`, `run.train`, `train#8`, `job.nightly` or a glob.
    FILE means all its runs. To see a destroyed run, give its name.

    With -w, status follows the runs until all have ended; `sgpu top` shows their ranks, too.
    """
    if watch:
        _check_watch(output)
    if any(map(is_path, names)):
        session, names = open_named(source, names)
    else:
        session = source.session()
    if names or source.target is not None or session.in_project:
        session.check_project()
        session.check_target()
    refs, resources = _named(session, names)
    if watch:
        from sgpu_decl.cli.status_watch import watch_status  # with rich

        watch_status(session, refs)
    views, jobs = session.runs.describe(refs), list(map(session.jobs.show, resources))
    if output == "json":
        from sgpu_decl.model.job import job_fields

        project = str(session.root) if session.in_project else None
        data: dict[str, Json] = {"project": project, "runs": status_objects(views)}
        answer({**data, "jobs": list(map(job_fields, jobs))} if jobs else data)
        return 0

    colour = takes_colour(sys.stdout)
    if views:
        _show_table(views, status_table(views, now=now(), colour=colour, hints=complete))
        for line in way_out_notes(views):
            note(line)
    if not (views or jobs):
        _say_nothing_is_live(session)
    if jobs:
        from sgpu_decl.views.jobs_text import job_table

        show(("\n" if views else "") + job_table(jobs, now=now(), colour=colour))
    _show_tracking(session, views)
    return 0


def _show_table(views: "Sequence[AttemptView]", table: str) -> None:
    """Show a line for each run. If stdout is a terminal that has a way or room to show it, the line
    has a link to the page of the run."""
    width = terminal_width(sys.stdout)
    if width is None:
        show(table)
        return
    from sgpu_decl.views.web_pages import linked_lines, run_pages, shows_links

    here = platform.node()
    pages = [next(iter(run_pages(view, here).values()), "") for view in views]
    links = [("", ""), *zip(map(str, (view.ref for view in views)), pages, strict=True)]
    escapes = shows_links(os.environ)
    show_lines(table, lambda lines: linked_lines(lines, links, escapes=escapes, width=width))


def _check_watch(output: str) -> None:
    """Refuse to watch where nothing can be drawn again.

    Raises:
        Usage: stdout is no terminal, or the answer is one object.
    """
    if output == "json":
        raise click.UsageError("`-w` draws a table, and `-o json` is one object: use one of them")
    if not takes_keys():
        raise Usage(
            "cannot watch runs: this is not a terminal",
            hint=complete("`sgpu wait NAME` waits until runs have ended"),
        )


def _named(
    session: "Session", names: tuple[str, ...]
) -> "tuple[tuple[AttemptRef, ...], list[Resource]]":
    """The runs and the jobs that the names match. A name that matches no run may be a job's."""
    if not names:
        return session.runs.current(), session.jobs.find()
    of_jobs = [name for name in names if session.jobs.names_job(name)]
    of_runs = [name for name in names if name not in of_jobs]
    return session.runs.find(*of_runs), session.jobs.find(*of_jobs) if of_jobs else []


def _say_nothing_is_live(session: "Session") -> None:
    """Say why there is nothing to show: no project, no launch yet, or all runs destroyed."""
    if not session.in_project:
        show(f"no project in `{session.root}` or in a folder above it")
        note("hint: `sgpu init` writes a first run; `--project DIR` names a project elsewhere")
        return
    gone = [resource.last for resource in session.state.resources() if resource.last is not None]
    show(complete(nothing_live(gone)))
    if (hint := session.other_targets_hint()) is not None:
        note(f"hint: {hint}")


def _show_tracking(session: "Session", views: "Sequence[AttemptView]") -> None:
    stores: set[str] = set()
    for view in views:
        run = view.links.get("mlflow")
        if isinstance(run, Mapping) and "tracking_uri" in run:
            uri = str(run["tracking_uri"])
            pages = session.runs.ui_command(uri, elsewhere="host" in run)
            stores.add(complete(pages or "") or uri)
        for line in tracking_notes(view):
            note(line)
    for store in sorted(stores):
        note(f"metrics: {store}")
