"""`sgpu cancel`."""

import click

from sgpu_decl.cli.options import Where, output_option, where_options
from sgpu_decl.cli.showing import answer, note

__all__ = ["command"]


@click.command("cancel")
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@where_options
@click.option("--no-wait", is_flag=True, help="Ask, and return before the runs have ended.")
@output_option()
def command(*, where: Where, names: tuple[str, ...], no_wait: bool, output: str) -> int:
    """Stop runs: their ranks get SIGTERM, and SIGKILL after their grace. Globs are taken.

    A run that has ended is left as it is.
    """
    session = where.recorded()
    refs = session.runs.find_active(*names)
    for ref in refs:
        session.runs.cancel(ref)
    if not no_wait:
        session.runs.wait(refs)
    runs = session.runs.describe(refs)
    if output == "json":
        answer({"runs": runs})
    else:
        for run in runs:
            note(f"{run['name']}#{run['attempt']} {run['state']}")
    return 0
