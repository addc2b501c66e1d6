"""`sgpu plan`."""

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
    where_options,
)
from sgpu_decl.cli.showing import answer, note, now, plan_text

if TYPE_CHECKING:
    from sgpu_decl.model.plan import Plan

__all__ = ["command", "show_plan"]


@click.command("plan")
@file_argument
@where_options
@choosing_options
@click.option(
    "--parallelism",
    type=click.IntRange(min=1),
    metavar="N",
    expose_value=False,
    help="As for `sgpu apply`, so that one command line serves both; the plan is the same.",
)
@click.option("--out", metavar="FILE", help="Save the plan, to apply exactly this.")
@click.option("--detailed-exitcode", is_flag=True, help="Exit 2 where something would change.")
@output_option("markdown")
def command(
    *,
    where: Where,
    file: str | None,
    out: str | None,
    detailed_exitcode: bool,
    output: str,
    choosing: Choosing,
) -> int:
    """Show what applying FILE would change, and why. Changes nothing.

    Exit codes: 0 ok, 1 the plan cannot be applied, 2 something would change (only with
    --detailed-exitcode).
    """
    from sgpu_decl.cli.advancing import open_progress
    from sgpu_decl.cli.approving import CHANGING
    from sgpu_decl.cli.failing import show_error
    from sgpu_decl.cli.planned import refusal

    if out is not None:
        from sgpu_decl.applying.saving import refuse_taken

        refuse_taken(Path(out))  # before planning costs anything
    session = where.session(file)
    with open_progress() as progress:
        plan = session.plan(choosing.options(), progress=progress)
    error = refusal(plan)
    if out is not None and error is None:
        with open_progress() as progress:
            session.save(plan, Path(out), progress=progress)
    if output == "json":
        from sgpu_decl.planning.writing import plan_to_json

        answer(plan_to_json(plan), error=error)
    else:
        show_plan(plan, output=output)
        if error is not None:
            show_error(error)
    if error is not None:
        return error.exit_code
    if out is not None:
        note(f"saved to `{out}`: apply exactly this with `sgpu apply {out}`")
    changes = any(change.action in CHANGING for change in plan.changes)
    return 2 if detailed_exitcode and changes else 0


def show_plan(plan: "Plan", *, output: str) -> None:
    """The plan for people, on stdout."""
    if output == "markdown":
        from sgpu_decl.views.plan_markdown import render

        click.echo(render(plan, now=now()), nl=False)
    else:
        click.echo(plan_text(plan, sys.stdout), color=True, nl=False)
