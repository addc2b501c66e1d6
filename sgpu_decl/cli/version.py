"""`sgpu version`."""

import click

from sgpu_decl import __version__
from sgpu_decl.cli.options import output_option
from sgpu_decl.cli.terminal_output import answer, show


@click.command("version")
@output_option()
def command(*, output: str) -> int:
    """Show the version of sgpu."""
    if output == "json":
        answer({"version": __version__})
    else:
        show(f"sgpu {__version__}")
    return 0
