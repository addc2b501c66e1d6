"""`sgpu results`."""

import json

import click

from sgpu_decl.cli.options import Where, output_option, where_options
from sgpu_decl.cli.showing import answer, note

__all__ = ["command"]


@click.command("results")
@click.argument("name")
@where_options
@output_option()
def command(*, where: Where, name: str, output: str) -> int:
    """Show what each rank of a run returned, in rank order. NAME is `train` or `train#8`."""
    session = where.recorded()
    ref = session.runs.find_one(name)
    results = session.runs.results(ref)
    if output == "json":
        answer({"results": results})
        return 0
    for result in results:
        click.echo(f"rank {result['rank']}: {json.dumps(result['value'], ensure_ascii=False)}")
    if not results:
        note(f"`{ref}` has returned nothing")
    return 0
