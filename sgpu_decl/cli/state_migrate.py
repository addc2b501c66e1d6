"""`sgpu state migrate`."""

import click

from sgpu_decl.cli.options import ProjectSource, lock_option, output_option, project_options
from sgpu_decl.cli.terminal_output import answer, note
from sgpu_decl.model.codec import to_json
from sgpu_decl.views.terminal import count


@click.command("migrate")
@project_options
@lock_option
@output_option()
def command(*, source: ProjectSource, output: str) -> int:
    """Copy the state of this machine to the shared store that `state` in sgpu.yml names.

    Runs and their history are copied. What was copied is read back and compared. The old file stays
    beside its place as `state.db.migrated`. Each target has a state of its own.
    """
    done = source.recorded().state.migrate()
    if output == "json":
        answer(to_json(done))
    else:
        copied = f"{count(done.resources, 'resource')} and {count(done.attempts, 'attempt')}"
        note(f"copied {copied}; the old state is kept as {done.kept}")
    return 0
