"""`sgpu schema`."""

import dataclasses
from pathlib import Path

import click

from sgpu_decl.cli.completed_by import completed_by
from sgpu_decl.cli.options import output_option
from sgpu_decl.cli.terminal_output import answer, note, show

__all__ = ["command"]


@click.command("schema")
@click.argument(
    "path", required=False, metavar="[PATH]", shell_complete=completed_by("explained paths")
)
@click.option("--write", metavar="DIR", help="Write all JSON Schemas into this folder.")
@output_option()
def command(*, path: str | None, write: str | None, output: str) -> int:
    """Explain a field, such as `run.env.variables`; `run` lists the fields of a run.

    Without PATH the names of the schemas are listed.
    """
    from sgpu_decl.api.published_schemas import describe, documents
    from sgpu_decl.api.published_schemas import write as write_all

    if write is not None:
        if path is not None:
            raise click.UsageError("`--write` writes all schemas: leave out the path")
        write_all(Path(write))
        note(f"wrote the schemas to `{write}`")
        if output == "json":
            answer({"written": write})
        return 0
    if path is None:
        schema_texts = documents()
        if output == "json":
            answer(schema_texts)
        else:
            for name in schema_texts:
                show(name)
        return 0
    field = describe(path)
    if output == "json":
        answer(dataclasses.asdict(field))
        return 0
    show(f"{field.path}: {field.type}")
    if field.default is not None:
        show(f"  default: {field.default}")
    show(f"  {field.description}")
    for child in field.children:
        name = child.path.rpartition(".")[2]
        kind = f"{child.type}, required" if child.required else child.type
        show(f"  {name}: {kind}")
        show(f"      {child.description}")
    return 0
