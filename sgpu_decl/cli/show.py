"""`sgpu show`."""

import sys
from pathlib import Path

import click

from sgpu_decl.cli.options import Where, output_option, where_options
from sgpu_decl.cli.showing import answer, now, takes_colour

__all__ = ["command"]


@click.command("show")
@click.argument("name", metavar="ADDRESS|PLAN")
@where_options
@output_option("markdown")
def command(*, where: Where, name: str, output: str) -> int:
    """Show one run whole, with its history; or a plan that was saved with `plan --out`."""
    from sgpu_decl.applying.saving import is_saved_plan

    if is_saved_plan(Path(name)):
        return _show_plan(Path(name), output)
    session = where.recorded()
    ref = session.runs.find_one(name)
    run = session.runs.show(ref)
    if output == "json":
        answer(run)
        return 0
    if output == "markdown":
        from sgpu_decl.views.run_markdown import render

        click.echo(render(run, now=now()), nl=False)
    else:
        from sgpu_decl.views.status_text import run_details

        click.echo(run_details(run, now=now(), colour=takes_colour(sys.stdout)))
    return 0


def _show_plan(path: Path, output: str) -> int:
    from sgpu_decl.applying.saving import load_plan
    from sgpu_decl.cli.plan import show_plan
    from sgpu_decl.planning.writing import plan_to_json

    plan = load_plan(path)
    if output == "json":
        answer(plan_to_json(plan))
    else:
        show_plan(plan, output=output)
    return 0
