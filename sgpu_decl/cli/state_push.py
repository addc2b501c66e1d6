"""`sgpu state push`."""

from pathlib import Path

import click

from sgpu_decl.cli.options import ProjectSource, lock_option, output_option, project_options
from sgpu_decl.cli.terminal_output import answer, note
from sgpu_decl.views.terminal import count


@click.command("push")
@click.argument("state_file", metavar="FILE", type=click.Path(path_type=Path))
@project_options
@lock_option
@output_option()
def command(*, source: ProjectSource, state_file: Path, output: str) -> int:
    """Record a state that `sgpu state pull` printed to FILE, in the place of what is recorded.

    So a state comes back from a shared store, or goes to another one. It is refused if another
    state is recorded, or a newer version of this one.
    """
    done = source.recorded().state.push(state_file)
    if output == "json":
        answer({"resources": done.resources, "attempts": done.attempts})
    else:
        pushed = f"{count(done.resources, 'resource')} and {count(done.attempts, 'attempt')}"
        note(f"recorded {pushed}")
    return 0
