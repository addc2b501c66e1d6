"""`sgpu logs`."""

import sys
from collections.abc import Iterator, Mapping, Sequence
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
from sgpu_decl.model.attempt import AttemptState
from sgpu_decl.views.status_json import status_objects

if TYPE_CHECKING:
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
    runs = status_objects(session.runs.describe(refs))
    listed = [run["ranks"] for run in runs]
    refuse_ranks(ranks, [len(item) for item in listed if isinstance(item, list) and item])
    _check_restart(runs, restart)
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
    if follow and any(AttemptState(str(run["state"])).active for run in runs):
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


def _check_restart(runs: "Sequence[Mapping[str, Json]]", restart: int | None) -> None:
    """Refuse a restart that there was not; an active run may come to it."""
    if restart is None or any(AttemptState(str(run["state"])).active for run in runs):
        return
    newest = max(int(str(run["restart"])) for run in runs)
    if restart > newest:
        raise NotFound(
            f"there is no restart {restart}: "
            + (f"the newest is {newest}" if newest else "ranks were started once, as restart 0"),
            hint="leave out `--restart` to see what all of them wrote",
        )
