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

    A run that has ended is left as it is. Ctrl-C leaves the runs to stop by themselves.

    Exit codes: 0 ok, 1 error, 130 left before the runs had ended.
    """
    from sgpu_decl.cli.attaching import await_stops
    from sgpu_decl.cli.interrupting import Signals

    session = where.recorded()
    refs = session.runs.find_active(*names)
    with Signals() as signals:
        for ref in refs:
            if session.runs.status(ref).state.active:
                session.runs.cancel(ref)
                note(f"{ref} asked to stop")
        if not no_wait:
            await_stops(session, refs, signals)
    runs = session.runs.describe(refs)
    if output == "json":
        answer({"runs": runs})
    else:
        for run in runs:
            note(f"{run['name']}#{run['attempt']} {run['state']}")
    return 0
