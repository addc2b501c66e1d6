"""`sgpu destroy`."""

import sys

import click

from sgpu_decl.cli.options import (
    Where,
    file_argument,
    output_option,
    where_options,
)

__all__ = ["command"]


@click.command("destroy")
@file_argument
@where_options
@click.option("--select", multiple=True, metavar="ADDRESS", help="Only these (globs).")
@click.option("--exclude", multiple=True, metavar="ADDRESS", help="Leave these out (globs).")
@click.option("-y", "--auto-approve", is_flag=True, help="Do not ask.")
@output_option()
def command(
    *,
    where: Where,
    file: str | None,
    select: tuple[str, ...],
    exclude: tuple[str, ...],
    auto_approve: bool,
    output: str,
) -> int:
    """Stop the runs of FILE (or of the whole project) and free what they staged.

    History and attempt numbers stay. Doing it twice is harmless.

    Exit codes: 0 ok, 1 error, 3 locked state.
    """
    from sgpu_decl.cli.carrying import Manner, carry_out
    from sgpu_decl.cli.options import Choosing

    session = where.session(file) if file is not None else where.recorded()
    plan = session.plan(Choosing(select=select, exclude=exclude).options(destroy=True))
    manner = Manner(
        auto=auto_approve,
        ranks=(0,),
        detach=False,
        json=output == "json",
        question="destroy all of this?",
        unattended="if that is what you want, give `-y`",
    )
    return carry_out(session, plan, manner=manner, saved=False, out=sys.stdout)
