"""`sgpu fetch`."""

import os

import click

from sgpu_decl.cli.advancing import open_progress
from sgpu_decl.cli.options import Where, output_option, where_options
from sgpu_decl.cli.showing import answer, note

__all__ = ["command"]


@click.command("fetch")
@click.argument("name")
@where_options
@output_option()
def command(*, where: Where, name: str, output: str) -> int:
    """Have the files that ranks left in SGPU_OUTPUT_DIR on this machine, and print the folder. NAME
    is `train` or `train#8`. What was fetched before is not fetched again."""
    session = where.recorded()
    ref = session.runs.find_one(name)
    with open_progress() as progress:
        kept = session.runs.output(ref, progress)
    if output == "json":
        answer({
            "folder": os.fspath(kept.folder), "files": kept.files, "bytes": kept.bytes,
            "lacking": list(kept.lacking),
        })  # fmt: skip
        return 1 if kept.lacking else 0
    from sgpu_decl.views.terminal import count, size

    click.echo(kept.folder)
    note(f"{count(kept.files, 'file')}, {size(kept.bytes)}")
    if not kept.lacking:
        return 0
    first = ", ".join(f"`{it}`" for it in kept.lacking[:3])
    more = f" and {len(kept.lacking) - 3:,} more" if len(kept.lacking) > 3 else ""
    note(f"warning: not there: {first}{more}; {kept.why}")
    return 1
