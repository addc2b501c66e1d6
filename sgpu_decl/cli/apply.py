"""`sgpu apply`."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from sgpu_decl.cli.options import (
    Choosing,
    Where,
    choosing_options,
    file_argument,
    output_option,
    parallelism_option,
    where_options,
)

if TYPE_CHECKING:
    from sgpu_decl.api import Session
    from sgpu_decl.model.plan import Plan

__all__ = ["command"]


@click.command("apply")
@file_argument
@where_options
@choosing_options
@parallelism_option
@click.option("-y", "--auto-approve", is_flag=True, help="Do not ask.")
@click.option("--detach", is_flag=True, help="Return once everything is launched.")
@click.option("--logs", default="0", metavar="N|all", help="The rank to follow; 0 by default.")
@output_option()
def command(
    *,
    where: Where,
    file: str | None,
    auto_approve: bool,
    detach: bool,
    logs: str,
    output: str,
    parallelism: int,
    choosing: Choosing,
) -> int:
    """Plan FILE (a run file, a project file or a saved plan), ask, carry it out, follow the runs.

    Ctrl-C while following: once leaves in five seconds, twice cancels the run, three times leaves
    at once. The run goes on unless it is cancelled.

    Exit codes: 0 ok, 1 error, 3 stale plan or locked state, 5 a run failed, 130 interrupted.
    """
    from sgpu_decl.cli.carrying import Manner, carry_out
    from sgpu_decl.cli.options import read_ranks

    manner = Manner(
        auto=auto_approve,
        ranks=read_ranks(logs),
        detach=detach,
        json=output == "json",
        parallelism=parallelism,
        question="carry this plan out?",
        unattended="look at it and apply it with `-y`, or save it with `sgpu plan --out FILE` "
        "and apply that",
    )
    session, plan, saved = _planned(where, file, choosing)
    return carry_out(session, plan, manner=manner, saved=saved, out=sys.stdout)


def _planned(where: Where, file: str | None, choosing: Choosing) -> "tuple[Session, Plan, bool]":
    from sgpu_decl.applying.saving import is_saved_plan
    from sgpu_decl.cli.advancing import open_progress

    if file is not None and is_saved_plan(Path(file)):
        from sgpu_decl.cli.saved import open_saved

        session, plan = open_saved(where, Path(file), choosing)
        return session, plan, True
    session = where.session(file)
    with open_progress() as progress:
        return session, session.plan(choosing.options(), progress=progress, take_in=True), False
