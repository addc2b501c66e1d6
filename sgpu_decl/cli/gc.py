"""`sgpu gc`."""

from typing import TYPE_CHECKING

import click

from sgpu_decl.cli.approval import confirm
from sgpu_decl.cli.options import (
    ProjectSource,
    lock_option,
    output_option,
    project_options,
    read_duration,
    whole,
)
from sgpu_decl.cli.progress import slow_step
from sgpu_decl.cli.terminal_output import answer, note, show
from sgpu_decl.model.state import KEEP_LAST
from sgpu_decl.views.gc_text import (
    gc_kept,
    gc_listing,
    gc_problems,
    gc_summary,
    listed_attempts,
    not_found_note,
)

if TYPE_CHECKING:
    from sgpu_decl.model.jsonable import Json

_BYTES = ("bytes", "code_bytes", "environment_bytes")


@click.command("gc")
@project_options
@lock_option
@click.option(
    "--keep-last", callback=whole(0), metavar="N",
    help=f"Keep the newest N attempts of each run: {KEEP_LAST} by default, 0 with --older-than.",
)  # fmt: skip
@click.option(
    "--older-than",
    metavar="D",
    help="Delete only attempts that ended more than D ago, such as `7d`.",
)
@click.option(
    "--all", "everything", is_flag=True,
    help="Also delete the output that `resume` and other runs may need.",
)  # fmt: skip
@click.option(
    "--dry-run", is_flag=True, help="Show the files that it would delete, and delete nothing."
)
@click.option("-y", "--auto-approve", is_flag=True, help="Do not ask for approval.")
@output_option()
def command(
    *,
    source: ProjectSource,
    keep_last: int | None,
    older_than: str | None,
    everything: bool,
    dry_run: bool,
    auto_approve: bool,
    output: str,
) -> int:
    """Delete code, logs and output of ended attempts. Their records stay in the state.

    gc keeps the newest success and the newest output of each run, which `resume` and
    `${run.NAME.output}` may need.

    gc also deletes stored code and environments that none of your projects uses any more.

    gc lists the files, and asks before it deletes them. Without a terminal it needs -y.
    """
    age = read_duration(older_than) if older_than is not None else None
    session = source.recorded()

    def collected(only: "list[str] | None" = None, *, dry_run: bool) -> "dict[str, Json]":
        return session.gc(
            keep_last=keep_last, older_than=age, everything=everything, only=only, dry_run=dry_run
        )

    text = output != "json"
    with slow_step("looking for attempts, code and environments that are not needed any more"):
        found = collected(dry_run=True)
    if text:
        for line in gc_listing(found):
            show(line)
        for words in gc_problems(found):
            note(f"not looked at: {words}")
        if (unseen := not_found_note(found)) is not None:
            note(unseen)
    freed = found
    if not dry_run:
        if any(found[name] for name in ("freed", *_BYTES)):
            if text:
                show(gc_summary(found, "to free"))
            confirm(
                "delete all of this?",
                auto=auto_approve,
                unattended="look with `--dry-run`; if that is what you want, give `-y`",
            )
        with slow_step("deleting attempts, code and environments that are not needed any more"):
            freed = collected(listed_attempts(found), dry_run=False)
    if text:
        for line in gc_kept(freed, found):
            show(line)
        for words in gc_problems(freed, found):
            note(f"not freed: {words}")
        show(gc_summary(freed, "would free" if dry_run else "freed"))
    else:
        answer(freed)
    return 0
