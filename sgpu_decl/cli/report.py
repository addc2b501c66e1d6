"""`sgpu report`."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from sgpu_decl.cli.completed_by import completed_by
from sgpu_decl.cli.options import ProjectSource, project_options
from sgpu_decl.cli.progress import slow_step
from sgpu_decl.cli.results import names_table
from sgpu_decl.cli.run_names import open_named
from sgpu_decl.cli.terminal_output import note, now, show
from sgpu_decl.errors import SgpuError
from sgpu_decl.views.terminal import count

if TYPE_CHECKING:
    from sgpu_decl.api import Session
    from sgpu_decl.model.attempt import AttemptRef
    from sgpu_decl.model.attempt_view import AttemptView


@click.command("report")
@click.argument(
    "names", nargs=-1, metavar="[NAME|FILE]...", shell_complete=completed_by("runs", "files")
)
@project_options
@click.option(
    "-o", "--out", metavar="FILE", help="The file; by default `sgpu-report-NAME-ATTEMPT.html`."
)
@click.option(
    "--sort",
    metavar="COLUMN",
    help="What the best run of several has the lowest value of; `--sort -COLUMN`: the highest.",
)
@click.option("--upload", is_flag=True, help="Add the page to the MLflow run of the attempt.")
def command(
    *,
    source: ProjectSource,
    names: tuple[str, ...],
    out: str | None,
    sort: str | None,
    upload: bool,
) -> int:
    """Write one HTML file about a run: how it ended and why, when, what it used, its metrics.

    NAME is `train` or `train#8`. For several runs, those of a matrix, of a glob or of a FILE, the
    page compares them. Without NAME and FILE, report takes the latest run.

    The page needs no network. It compares the run with its last attempt that succeeded.
    """
    from sgpu_decl.api.report_file import refuse_other_file, write_report

    session, found = open_named(source, names)
    refs = session.runs.find(*found)
    several = names_table(found, refs)
    if sort is not None and not several:
        raise click.UsageError("`--sort` is for several runs: leave it out")
    if several and upload:
        raise click.UsageError("`--upload` is for one run: leave it out")
    path = Path(out) if out is not None else Path(_file_name(refs, several=several))
    refuse_other_file(path)
    page = page_of(session, found, sort)
    write_report(path, page)
    show(f"wrote {path}")
    if upload:
        show(f"added {session.runs.upload_report(refs[0], page)} to the MLflow run")
    return 0


def upload_reports(session: "Session", views: "Iterable[AttemptView]") -> None:
    """Add reports to the MLflow runs of those attempts that have ended and ask for it. What cannot
    be added is said, and no error."""
    for view in views:
        if view.state.active or view.unavailable or not session.runs.wants_report(view.ref):
            continue
        try:
            session.runs.upload_report(view.ref, page_of(session, [str(view.ref)]))
        except SgpuError as error:
            note(f"warning: {error.message}")


def page_of(session: "Session", names: Sequence[str], sort: str | None = None) -> str:
    """The page about the runs that names stand for; `sort` as the option."""
    from sgpu_decl.views import report_page

    refs = session.runs.find(*names)
    if names_table(names, refs):
        with slow_step(f"reading results and MLflow metrics of {count(len(refs), 'run')}"):
            table = session.runs.table(refs)
            return report_page.table_page(table, _title(refs), best=sort, now=now())
    with slow_step(f"reading what `{refs[0]}` left"):
        return report_page.attempt_page(session.runs.report(refs[0]), now=now())


def _title(refs: "Sequence[AttemptRef]") -> str:
    names = list(dict.fromkeys(ref.address.name for ref in refs))
    return names[0] if len(names) == 1 else ", ".join(names[:3]) + (", …" if names[3:] else "")


def _file_name(refs: "Sequence[AttemptRef]", *, several: bool) -> str:
    if not several:
        return f"sgpu-report-{refs[0].address.folder}-{refs[0].number}.html"
    names = {ref.address.name for ref in refs}
    return f"sgpu-report-{refs[0].address.name if len(names) == 1 else 'runs'}.html"
