"""`sgpu state compact`."""

import click

from sgpu_decl.cli.options import (
    ProjectSource,
    lock_option,
    output_option,
    project_options,
    read_duration,
)
from sgpu_decl.cli.terminal_output import answer, note
from sgpu_decl.views.terminal import count


@click.command("compact")
@click.option(
    "--older-than",
    required=True,
    metavar="D",
    help="Delete only entries that are older than D, such as `90d`.",
)
@project_options
@lock_option
@output_option()
def command(*, source: ProjectSource, older_than: str, output: str) -> int:
    """Delete old entries of a shared state, and proposals that have expired.

    The state stays as it is, with the history of all runs. `sgpu state log` and `--at` go back to
    the oldest entry that is left. In PostgreSQL and in a bucket, the user needs the right to
    delete.
    """
    done = source.recorded().state.compact(read_duration(older_than))
    if output == "json":
        answer(
            {
                "entries": done.entries,
                "first": done.first,
                "proposals": done.proposals,
            }
        )
        return 0
    if done.first is None:
        note("no entry is as old as that")
    else:
        note(
            f"deleted {count(done.entries, 'entry', 'entries')}; "
            f"entry {done.first} is the oldest one now"
        )
    if done.proposals:
        note(f"deleted {count(done.proposals, 'proposal')} that had expired")
    return 0
