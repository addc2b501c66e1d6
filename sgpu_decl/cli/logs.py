"""`sgpu logs`."""

import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import click

from sgpu_decl.cli.options import (
    ProjectSource,
    output_option,
    project_options,
    read_ranks,
    refuse_ranks,
    whole,
)
from sgpu_decl.cli.terminal_output import answer, note, write_line
from sgpu_decl.errors import NotFound

if TYPE_CHECKING:
    from sgpu_decl.model.attempt_view import AttemptView
    from sgpu_decl.model.jsonable import Json

__all__ = ["command"]


@click.command("logs")
@click.argument("name")
@project_options
@click.option("-f", "--follow", is_flag=True, help="Show new output until the run has ended.")
@click.option("--rank", default="0", metavar="N|all", help="The rank to show: 0 by default.")
@click.option(
    "--restart",
    callback=whole(0),
    metavar="N",
    help="Show restart N alone; 0 is the first start.",
)
@output_option()
def command(
    *, source: ProjectSource, name: str, follow: bool, rank: str, restart: int | None, output: str
) -> int:
    """Show what the ranks of a run wrote.

    NAME is `train`, `run.train` or `train#8`. A glob shows several runs. Lines of Python ranks are
    sorted by time. Colours are kept, and other control characters are escaped. Values of the run's
    secrets are hidden if they can be resolved here.
    """
    from sgpu_decl.model.rank_output import LogLines
    from sgpu_decl.views.logs_text import clean_lines, prefix

    ranks = read_ranks(rank)
    if follow and output == "json":
        raise click.UsageError("`-f` has no end, and `-o json` is one object: use one of them")
    session = source.recorded()
    refs = session.runs.find(name)
    views = session.runs.describe(refs)
    refuse_ranks(ranks, [len(view.ranks) for view in views if view.ranks])
    _check_restart(views, restart)
    if missing := session.runs.unhidden(refs):
        named = ", ".join(f"`{reference}`" for reference in missing)
        note(f"warning: {named} cannot be resolved here: if a rank wrote the value, it is shown")
    if output == "json":
        lines: list[Json] = [
            {"run": str(log.ref), "rank": log.rank, "stream": log.stream, "text": text}
            for ref in refs
            for log in session.runs.logs(ref, ranks=ranks, follow=False, restart=restart)
            if log is not None
            for text in log.lines
        ]
        answer({"lines": lines})
        return 0
    several = len(refs) > 1 or ranks is None
    if follow and any(view.state.active for view in views):
        shown: Iterator[object] = session.runs.follow(refs, ranks=ranks, restart=restart)
    else:
        shown = (
            log
            for ref in refs
            for log in session.runs.logs(ref, ranks=ranks, follow=False, restart=restart)
        )
    for item in shown:
        if isinstance(item, LogLines):
            before = prefix(item.ref.address.label, item.rank) if several else ""
            write_line(sys.stdout, clean_lines(item.text, before))
    return 0


def _check_restart(views: "Sequence[AttemptView]", restart: int | None) -> None:
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
