"""`sgpu import`."""

from pathlib import Path

import click

from sgpu_decl.cli.completed_by import completed_by
from sgpu_decl.cli.options import output_option
from sgpu_decl.cli.terminal_output import answer, note, show

TOOLS = ("air", "bundle", "skypilot", "dstack")


@click.command("import")
@click.argument("source", metavar="FILE", shell_complete=completed_by("files"))
@click.option(
    "--from", "tool", type=click.Choice(TOOLS),
    help="The tool of FILE: `databricks air`, a Databricks bundle, SkyPilot or dstack. Default: "
    "found out from its fields.",
)  # fmt: skip
@click.option(
    "--write",
    metavar="PATH",
    help="Write the YAML to a new file. Paths in it start there, else at FILE.",
)
@output_option()
def command(*, source: str, tool: str | None, write: str | None, output: str) -> int:
    """Write a file of another tool as a run or project file.

    FILE is a workload of `databricks air`, a task of SkyPilot or dstack, or `databricks.yml` of a
    bundle whose jobs have GPU tasks. The YAML goes to standard output, and sgpu takes it as it is.

    import says of each field of FILE whether it is carried, changed or lost, and what to do about
    it. Where FILE says nothing, the YAML has the default of its tool. Nothing is executed, and no
    workspace is asked.

    Exit codes: 0 ok, 1 error.
    """
    from sgpu_decl.api.imported_file import import_file
    from sgpu_decl.views.import_text import import_json, import_lines

    path = None if write is None else Path(write)
    imported = import_file(Path(source), tool=tool, write=path)
    if output == "json":
        answer({**import_json(imported), "written": write})
        return 0
    for line in import_lines(imported):
        show(line, err=True)
    if write is None:
        show(imported.text, nl=False)
    else:
        note(f"wrote `{write}`: look at `sgpu plan {write}`")
    return 0
