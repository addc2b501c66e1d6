"""`sgpu state claim`."""

import click

from sgpu_decl.cli.options import ProjectSource, lock_option, output_option, project_options
from sgpu_decl.cli.terminal_output import answer, note


@click.command("claim")
@project_options
@lock_option
@output_option()
def command(*, source: ProjectSource, output: str) -> int:
    """Say that a shared state belongs to this repository and folder, after they got another name.

    Commands in a checkout of another repository, or in another folder, are refused from then on.
    Each target has a state of its own.
    """
    home = source.recorded().state.claim()
    if output == "json":
        answer({"repository": home.repository, "folder": home.folder})
    else:
        note(f"the state belongs to {home} now")
    return 0
