"""`sgpu stacks`."""

import click

from sgpu_decl.cli.completed_by import completed_by
from sgpu_decl.cli.options import (
    ProjectSource,
    output_option,
    project_options,
    rank_option,
    read_ranks,
    refuse_ranks,
)
from sgpu_decl.cli.run_names import open_named
from sgpu_decl.cli.terminal_output import answer, note, show
from sgpu_decl.model.codec import to_json
from sgpu_decl.views.rank_output_text import stack_groups_json, stack_groups_text


@click.command("stacks")
@click.argument(
    "name", required=False, metavar="[NAME|FILE]", shell_complete=completed_by("runs", "files")
)
@project_options
@rank_option(default="all", show_default=True, help="The rank whose stacks are shown.")
@output_option()
def command(*, source: ProjectSource, name: str | None, rank: str, output: str) -> int:
    """Show the Python stack of each thread of a run's running ranks. The ranks continue.

    NAME is `train` or `train#8`. FILE is the file of a run. Without NAME and FILE, the latest run
    is meant.

    Ranks with equal stacks are shown together. A rank that differs from most others comes last,
    with the line where it differs. In a hang, the others often wait for this rank.

    The stacks of a rank that is a `command` need `py-spy` on this machine, which pauses the rank
    while it reads them.
    """
    ranks = read_ranks(rank)
    session, names = open_named(source, (name,) if name else ())
    ref = session.runs.find_one(*names)
    world = len(session.runs.status(ref).ranks)
    refuse_ranks(ranks, [world] if world else [])
    stacks = session.runs.stacks(ref, ranks)
    if output == "json":
        answer({"stacks": to_json(stacks), "groups": stack_groups_json(stacks)})
        return 0
    if text := stack_groups_text(stacks):
        show(text)
    for one in stacks:
        if one.text is None:
            note(f"rank {one.rank}, process {one.pid}: no stacks: {one.reason}")
    return 0
