"""`sgpu help`."""

import click

from sgpu_decl.cli.completed_by import completed_by
from sgpu_decl.cli.terminal_output import show


@click.command("help")
@click.argument("path", nargs=-1, metavar="[COMMAND]...", shell_complete=completed_by("commands"))
@click.pass_context
def command(context: click.Context, *, path: tuple[str, ...]) -> int:
    """Show the help of COMMAND, as `sgpu COMMAND --help` does.

    Without COMMAND, list all commands.
    """
    here = context.find_root()
    for index, word in enumerate(path):
        if not isinstance(here.command, click.Group):
            raise click.UsageError(f"`{here.command_path}` has no command `{word}`", here)
        name, subcommand, _ = here.command.resolve_command(here, list(path[index:]))
        if subcommand is not None:
            here = click.Context(subcommand, info_name=name, parent=here)
    show(here.get_help())
    return 0
