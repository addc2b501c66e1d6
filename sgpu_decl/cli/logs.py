"""`sgpu logs`."""

import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import click

from sgpu_decl.cli.options import Where, output_option, read_ranks, where_options
from sgpu_decl.cli.showing import answer, note, write_line
from sgpu_decl.errors import NotFound

if TYPE_CHECKING:
    from sgpu_decl.model.jsonable import Json

__all__ = ["command"]


@click.command("logs")
@click.argument("name")
@where_options
@click.option("-f", "--follow", is_flag=True, help="Go on until the run has ended.")
@click.option("--rank", default="0", metavar="N|all", help="The rank to show; 0 by default.")
@click.option(
    "--restart", type=click.IntRange(0), metavar="N", help="Only what restart N wrote; 0 is first."
)
@output_option()
def command(
    *, where: Where, name: str, follow: bool, rank: str, restart: int | None, output: str
) -> int:
    """Show what the ranks of a run wrote. NAME is `train`, `run.train` or `train#8`; a glob shows
    several runs. Python ranks are merged in the order of time. Colours pass, other control
    characters are escaped; values of the run's secrets are hidden if they can be resolved here."""
    from sgpu_decl.backends.base import LogLine
    from sgpu_decl.views.logs_text import clean, prefix

    ranks = read_ranks(rank)
    if follow and output == "json":
        raise click.UsageError("`-f` has no end, and `-o json` is one object: use one of them")
    session = where.recorded()
    refs = session.runs.find(name)
    _check_ranks(session.runs.describe(refs), ranks)
    if missing := session.runs.unhidden(refs):
        named = ", ".join(f"`{reference}`" for reference in missing)
        note(f"warning: {named} cannot be resolved here: if a rank wrote the value, it is shown")
    if output == "json":
        lines: list[Json] = [
            {"run": str(it.ref), "rank": it.rank, "stream": it.stream, "text": it.text}
            for ref in refs
            for it in session.runs.logs(ref, ranks=ranks, follow=False, restart=restart)
            if it is not None
        ]
        answer({"lines": lines})
        return 0
    several = len(refs) > 1 or ranks is None
    if follow:
        shown: Iterator[object] = session.runs.follow(refs, ranks=ranks, restart=restart)
    else:
        shown = (
            it
            for ref in refs
            for it in session.runs.logs(ref, ranks=ranks, follow=False, restart=restart)
        )
    for it in shown:
        if isinstance(it, LogLine):
            before = prefix(it.ref.address.label, it.rank) if several else ""
            write_line(sys.stdout, before + clean(it.text))
    return 0


def _check_ranks(runs: "Sequence[Mapping[str, Json]]", ranks: Sequence[int] | None) -> None:
    """Refuse a rank that none of the runs has; a run that has not started yet may have any."""
    worlds = [len(run["ranks"]) for run in runs if isinstance(run["ranks"], list) and run["ranks"]]
    if ranks is None or not worlds or min(ranks, default=0) < max(worlds):
        return
    raise NotFound(
        f"there is no rank {min(ranks)}: the ranks are 0 to {max(worlds) - 1}",
        hint="give one of them, or `--rank all`",
    )
