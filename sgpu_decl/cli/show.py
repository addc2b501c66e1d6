"""`sgpu show`."""

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from sgpu_decl.api import is_saved_plan
from sgpu_decl.cli.completed_by import completed_by
from sgpu_decl.cli.next_steps import complete
from sgpu_decl.cli.options import (
    ProjectSource,
    limit_option,
    offline_option,
    output_option,
    project_options,
)
from sgpu_decl.cli.results import names_table, show_table
from sgpu_decl.cli.run_names import is_path, open_named
from sgpu_decl.cli.terminal_output import answer, note, now, show, takes_colour
from sgpu_decl.errors import SgpuError
from sgpu_decl.views.status_json import run_object
from sgpu_decl.views.status_text import run_details

if TYPE_CHECKING:
    from sgpu_decl.api import Session


@click.command("show")
@click.argument(
    "name", required=False, metavar="[NAME|FILE|PLAN]", shell_complete=completed_by("runs", "files")
)
@project_options
@offline_option
@output_option("markdown", "html")
@limit_option
def command(
    *,
    source: ProjectSource,
    name: str | None,
    output: str,
    limit: int | None,
) -> int:
    """Show one run with its history, one job, or a plan that was saved with `plan --out`.

    NAME is `train`, `train#8` or `job.nightly`. FILE is the file of a run. Without NAME and FILE,
    show takes the latest run.

    For the runs of a matrix or of a glob, show prints a table, like `sgpu results`. With
    `-o html`, it prints the page of `sgpu report`.
    """
    if output == "html":
        return _show_page(source, name)
    if name is not None and is_saved_plan(Path(name)):
        if source != ProjectSource():
            raise click.UsageError(
                f"`{name}` is a saved plan, which names its own project and target: leave out "
                "`-t`, `--project` and `--offline`"
            )
        _note_run_of_that_name(source, name)
        return _show_plan(Path(name), output, limit)
    if limit is not None:
        raise click.UsageError("`--limit` shortens a saved plan: name one, or leave it out")
    session, names = open_named(source, (name,) if name else ())
    if name is not None and not is_path(name) and session.jobs.names_job(name):
        return _show_job(session, name, output)
    refs = session.runs.find(*names)
    if names_table(names, refs):
        show_table(session, refs, sort=None, output=output)
        return 0
    run = session.runs.show(refs[0])
    if output == "json":
        answer(run_object(run))
        return 0
    if output == "markdown":
        from sgpu_decl.views.run_markdown import render

        show(render(run, now=now()), nl=False)
    else:
        colour = takes_colour(sys.stdout)
        show(run_details(run, now=now(), colour=colour, hints=complete))
    return 0


def _show_page(source: ProjectSource, name: str | None) -> int:
    from sgpu_decl.cli.report import page_of

    session, names = open_named(source, (name,) if name else ())
    if name is not None and not is_path(name) and session.jobs.names_job(name):
        raise click.UsageError("`-o html` is for runs: leave it out for a job")
    show(page_of(session, names), nl=False)
    return 0


def _note_run_of_that_name(source: ProjectSource, name: str) -> None:
    """Say which of the two is shown if a saved plan has the name of a run."""
    session = source.session()
    try:
        address = session.runs.find(name)[0].address
    except SgpuError:  # there is no such run, or no state that can be read: a plan needs neither
        return
    run = f"sgpu show {shlex.quote(str(address))}"
    note(f"note: this is the saved plan `{name}`; see the run with `{run}`")


def _show_job(session: "Session", name: str, output: str) -> int:
    job = session.jobs.show(session.jobs.find_one(name))
    if output == "json":
        from sgpu_decl.model.job import whole_job_fields

        answer(whole_job_fields(job))
        return 0
    from sgpu_decl.views.jobs_text import job_details

    colour = output == "text" and takes_colour(sys.stdout)
    text = job_details(job, now=now(), colour=colour, hints=complete)
    show(text if output == "text" else f"```\n{text}\n```")
    return 0


def _show_plan(path: Path, output: str, limit: int | None) -> int:
    from sgpu_decl.api import load_plan
    from sgpu_decl.cli.plan import refuse_limit, show_plan

    refuse_limit(limit, output=output)
    saved = load_plan(path)
    if output == "json":
        answer(saved.to_json())
    else:
        show_plan(saved, output=output, limit=limit)
    return 0
