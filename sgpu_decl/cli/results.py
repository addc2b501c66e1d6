"""`sgpu results`."""

import click

from sgpu_decl.cli.options import ProjectSource, output_option, project_options
from sgpu_decl.cli.terminal_output import answer, note, show
from sgpu_decl.views.results_text import secrets_note
from sgpu_decl.views.terminal import json_text

__all__ = ["command"]


@click.command("results")
@click.argument("name")
@project_options
@output_option()
def command(*, source: ProjectSource, name: str, output: str) -> int:
    """Show what each rank of a run returned, in rank order. NAME is `train` or `train#8`. Values
    of the run's secrets are masked."""
    session = source.recorded()
    ref = session.runs.find_one(name)
    results = session.runs.results(ref)
    if secrets_warning := secrets_note(ref, results):
        note(secrets_warning)
    if output == "json":
        answer({"results": results})
        return 0
    for result in results:
        show(f"rank {result['rank']}: {json_text(result['value'])}")
    if not results:
        state = session.runs.status(ref).state
        yet = " yet" if state.active else ""
        note(f"no rank of `{ref}` has returned a value{yet}: it is {state}")
    return 0
