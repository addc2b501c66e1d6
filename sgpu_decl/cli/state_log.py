"""`sgpu state log`."""

import click

from sgpu_decl.cli.options import ProjectSource, output_option, project_options
from sgpu_decl.cli.terminal_output import answer, note, show
from sgpu_decl.views.state_log_text import log_json, log_text


@click.command("log")
@click.option(
    "--tail",
    type=click.IntRange(min=1),
    default=20,
    show_default=True,
    metavar="N",
    help="Show the N newest entries.",
)
@project_options
@output_option()
def command(*, source: ProjectSource, tail: int, output: str) -> int:
    """Show who changed a shared state, when, and how: the newest entry comes first."""
    entries = source.recorded().state.log(tail)
    if output == "json":
        answer({"entries": log_json(entries)})
    elif entries:
        show(log_text(entries))
    else:
        note("the state has no entries yet: `sgpu apply` adds the first one")
    return 0
