"""`sgpu gc`."""

from typing import TYPE_CHECKING

import click

from sgpu_decl.cli.options import Where, output_option, where_options
from sgpu_decl.cli.showing import answer

if TYPE_CHECKING:
    from sgpu_decl.model.jsonable import Json

__all__ = ["command"]


@click.command("gc")
@where_options
@click.option("--keep-last", type=click.IntRange(min=0), metavar="N", help="Keep so many per run.")
@click.option("--older-than", metavar="D", help="Only what ended longer ago, such as `7d`.")
@click.option("--dry-run", is_flag=True, help="Say what would go, and delete nothing.")
@output_option()
def command(
    *, where: Where, keep_last: int | None, older_than: str | None, dry_run: bool, output: str
) -> int:
    """Delete code, logs and output of ended attempts. The record of what ran stays."""
    from sgpu_decl.cli.options import read_duration
    from sgpu_decl.views.terminal import count, size

    age = read_duration(older_than) if older_than is not None else None
    freed = where.recorded().gc(keep_last=keep_last, older_than=age, dry_run=dry_run)
    if output == "json":
        answer(freed)
        return 0
    attempts = freed["attempts"]
    names = [str(it) for it in attempts] if isinstance(attempts, list | tuple) else []
    for name in names:
        click.echo(name)
    verb = "would free" if dry_run else "freed"
    click.echo(
        f"{verb} {count(len(names), 'attempt')}, {size(_number(freed['bytes']))}, "
        f"{size(_number(freed['code_bytes']))} of stored code, "
        f"and {size(_number(freed['environment_bytes']))} of environments"
    )
    return 0


def _number(value: "Json") -> int:
    return value if isinstance(value, int) else 0
