"""`sgpu open`."""

import os
import platform
import shlex
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING

import click

from sgpu_decl.cli.completed_by import completed_by
from sgpu_decl.cli.options import ProjectSource, project_options
from sgpu_decl.cli.run_names import is_path, open_named
from sgpu_decl.cli.terminal_output import note, show
from sgpu_decl.errors import NotFound
from sgpu_decl.views.web_pages import PAGES, job_pages, run_pages

if TYPE_CHECKING:
    from sgpu_decl.api import Session
    from sgpu_decl.model.attempt_view import AttemptView
    from sgpu_decl.model.job import JobView


@click.command("open")
@click.argument(
    "name", required=False, metavar="[NAME|FILE]", shell_complete=completed_by("runs", "files")
)
@click.option(
    "--page", type=click.Choice(PAGES),
    help="Open this page. Default: the first of these that exists.",
)  # fmt: skip
@click.option("--print", "prints", is_flag=True, help="Print the address, and open nothing.")
@project_options
def command(*, source: ProjectSource, name: str | None, page: str | None, prints: bool) -> int:
    """Open the page of a run or job in the browser: its last launch in the workspace, the job, the
    MLflow run, or the dashboard of Ray.

    NAME is `train`, `train#8` or `job.nightly`. Without NAME and FILE, open takes the latest run.
    Without a browser, for example over ssh, the command prints the address.
    """
    session, names = open_named(source, (name,) if name else ())
    if name is not None and not is_path(name) and session.jobs.names_job(name):
        job = session.jobs.show(session.jobs.find_one(name))
        what, pages, hint = str(job.address), job_pages(job), _job_hint(job)
    else:
        (view,) = session.runs.describe([session.runs.find_one(*names)])
        pages = run_pages(view, platform.node())
        what, hint = str(view.ref), _run_hint(session, view)
    if page is not None and pages and page not in pages:
        known = ", ".join(f"`--page {kind}`" for kind in pages)
        raise NotFound(f"`{what}` has no page of this kind", hint=f"it has {known}", code="no_page")
    if not pages:
        raise NotFound(f"`{what}` has no page that a browser can show", hint=hint, code="no_page")
    url = pages[page] if page is not None else next(iter(pages.values()))
    if prints or not _has_browser(os.environ, sys.platform) or not _opened(url):
        show(url)
    else:
        note(f"opened {url}")
    return 0


def _run_hint(session: "Session", view: "AttemptView") -> str:
    """The way to what a run has instead of a page."""
    if view.unavailable is not None:
        return f"its backend does not answer now: {view.unavailable}"
    named = shlex.quote(str(view.ref))
    tracked = view.links.get("mlflow")
    pages = None
    if isinstance(tracked, Mapping) and "tracking_uri" in tracked:
        pages = session.runs.ui_command(str(tracked["tracking_uri"]), elsewhere="host" in tracked)
    also = f", and {pages} serves the pages of MLflow" if pages else ""
    return f"`sgpu report {named}` writes a page about it{also}"


def _job_hint(job: "JobView") -> str:
    return job.error or f"`sgpu show {job.address}` shows the job"


def _has_browser(environ: Mapping[str, str], system: str) -> bool:
    """Whether a window can open. Browsers that draw on the terminal would hide it."""
    if environ.get("BROWSER"):
        return True
    return system == "darwin" or bool(environ.get("DISPLAY") or environ.get("WAYLAND_DISPLAY"))


def _opened(url: str) -> bool:
    import webbrowser

    try:
        return webbrowser.open(url)
    except webbrowser.Error:
        return False
