"""`sgpu status`."""

import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING

import click

from sgpu_decl.cli.options import Where, output_option, where_options
from sgpu_decl.cli.showing import answer, note, now, takes_colour

if TYPE_CHECKING:
    from sgpu_decl.api import Session
    from sgpu_decl.model.jsonable import Json

__all__ = ["command"]


@click.command("status")
@click.argument("names", nargs=-1, metavar="[NAME]...")
@where_options
@output_option()
def command(*, where: Where, names: tuple[str, ...], output: str) -> int:
    """Show the latest attempt of every run, or of those named (addresses, names, globs)."""
    session = where.recorded()
    refs = session.runs.find(*names) if names else session.runs.current()
    runs = session.runs.describe(refs)
    if output == "json":
        answer({"runs": runs})
        return 0
    from sgpu_decl.views.status_text import status_table

    click.echo(status_table(runs, now=now(), colour=takes_colour(sys.stdout)))
    _say_where_tracked(session, runs)
    return 0


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
