"""`sgpu schema`."""

from pathlib import Path

import click

from sgpu_decl.cli.options import output_option
from sgpu_decl.cli.terminal_output import answer, note, show
from sgpu_decl.errors import Usage


@click.command("schema", context_settings={"allow_extra_args": True})
@click.option("--write", metavar="DIR", help="Write all JSON Schemas into this folder.")
@output_option()
@click.pass_context
def command(context: click.Context, *, write: str | None, output: str) -> int:
    """Write the JSON Schemas of files and answers; without `--write`, list their names.

    With `-o json`, the schemas themselves are printed.
    """
    from sgpu_decl.api.published_schemas import documents
    from sgpu_decl.api.published_schemas import write as write_all

    if context.args:
        raise Usage(
            "`sgpu schema` explains no fields", hint=f"`sgpu explain {context.args[0]}` does"
        )
    if write is not None:
        write_all(Path(write))
        note(f"wrote the schemas to `{write}`")
        if output == "json":
            answer({"written": write})
    elif output == "json":
        answer(documents())
    else:
        for name in documents():
            show(name)
    return 0
