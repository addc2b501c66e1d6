"""`sgpu state grants`."""

import click

from sgpu_decl.cli.options import ProjectSource, output_option, project_options
from sgpu_decl.cli.terminal_output import answer, show

__all__ = ["command"]


def _role(_: click.Context, __: click.Parameter, name: str) -> str:
    """PostgreSQL cuts longer names off, and they would mean another role."""
    if not 1 <= len(name.encode()) <= 63:
        raise click.BadParameter("a role has a name of 1 to 63 bytes")
    return name


@click.command("grants")
@click.option(
    "--planner",
    callback=_role,
    metavar="ROLE",
    required=True,
    help="The role that plans, and looks.",
)
@click.option(
    "--applier", callback=_role, metavar="ROLE", required=True, help="The role that applies."
)
@project_options
@output_option()
def command(*, source: ProjectSource, planner: str, applier: str, output: str) -> int:
    """Print the SQL that makes the tables of a state in PostgreSQL, and gives two roles their
    rights.

    The owner of the database runs it, once or again. The planner may read alone; the applier may
    add entries as well. Neither may change or delete an entry.
    """
    sql = source.recorded().state.grants(planner=planner, applier=applier)
    if output == "json":
        answer({"sql": sql})
    else:
        show(sql, nl=False)
    return 0
