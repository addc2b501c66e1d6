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
    from sgpu_decl.errors import NotFound

    session = where.recorded()
    refs = session.runs.find(name)
    if len(refs) > 1:
        raise NotFound(
            f"`{name}` names {len(refs)} runs",
            hint=f"name one of them, such as `{refs[0]}`",
            code="ambiguous",
        )
    results = session.runs.results(refs[0])
    if output == "json":
        answer({"results": results})
        return 0
    for result in results:
        click.echo(f"rank {result['rank']}: {json.dumps(result['value'], ensure_ascii=False)}")
    if not results:
        note(f"`{refs[0]}` has returned nothing")
    return 0
