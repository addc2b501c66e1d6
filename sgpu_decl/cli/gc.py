"""`sgpu gc`."""

import shlex
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import click

from sgpu_decl.cli.options import ProjectSource, lock_option, output_option, project_options, whole
from sgpu_decl.cli.slow_step import slow_step
from sgpu_decl.cli.terminal_output import answer, note, show
from sgpu_decl.model.state import KEEP_LAST

if TYPE_CHECKING:
    from sgpu_decl.model.jsonable import Json

__all__ = ["command"]

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
@click.option("--dry-run", is_flag=True, help="Show what would be freed, and delete nothing.")
@output_option()
def command(
    *,
    source: ProjectSource,
    keep_last: int | None,
    older_than: str | None,
    dry_run: bool,
    output: str,
) -> int:
    """Delete code, logs and output of ended attempts. Their records stay in the state.

    Stored code and environments that no project of yours refers to any more are deleted too.
    """
    from sgpu_decl.cli.options import read_duration
    from sgpu_decl.views.terminal import count, size

    age = read_duration(older_than) if older_than is not None else None
    session = source.recorded()
    verb = "looking for" if dry_run else "deleting"
    with slow_step(f"{verb} attempts, code and environments that are not needed any more"):
        freed = session.gc(keep_last=keep_last, older_than=age, dry_run=dry_run)
    if output == "json":
        answer(freed)
        return 0
    attempts = freed["attempts"]
    names = [str(attempt) for attempt in attempts] if isinstance(attempts, list | tuple) else []
    for name in names:
        show(name)
    owners = _mappings(freed["not_found"])
    for owner in owners:
        until = owner["kept_until"]
        how_long = f"kept until {until}" if until else "kept"
        note(f"not found: `{owner['path']}`; its code and environments are {how_long}")
    if owners:
        records = " ".join(shlex.quote(str(owner["record"])) for owner in owners)
        note(f"hint: if you deleted {'it' if len(owners) == 1 else 'them'}: `rm {records}`, "
             "then `sgpu gc`")  # fmt: skip
    if not names and not any(_number(freed[name]) for name in _BYTES):
        show("nothing to free")
        return 0
    verb = "would free" if dry_run else "freed"
    show(
        f"{verb} {count(len(names), 'attempt')}, {size(_number(freed['bytes']))}, "
        f"{size(_number(freed['code_bytes']))} of stored code, "
        f"and {size(_number(freed['environment_bytes']))} of environments"
    )
    return 0


def _mappings(value: "Json") -> "list[Mapping[str, Json]]":
    items = value if isinstance(value, Sequence) else []
    return [item for item in items if isinstance(item, Mapping)]


def _number(value: "Json") -> int:
    return value if isinstance(value, int) else 0
