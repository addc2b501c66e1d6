"""`sgpu apply`."""

from dataclasses import replace
from pathlib import Path

import click

from sgpu_decl.api import is_saved_plan
from sgpu_decl.cli.apply_flow import ApplyScreen
from sgpu_decl.cli.desktop_notice import notify_option
from sgpu_decl.cli.event_file import event_file, event_option
from sgpu_decl.cli.file_options import (
    file_options,
    parallelism_option,
    selection_options,
    words_argument,
)
from sgpu_decl.cli.options import ProjectSource, lock_option, output_option, rank_option, read_ranks
from sgpu_decl.model.plan_options import PlanOptions


@click.command("apply")
@words_argument
@file_options
@lock_option
@selection_options
@parallelism_option
@click.option("-y", "--auto-approve", is_flag=True, help="Do not ask for approval.")
@click.option(
    "--reviewed",
    is_flag=True,
    help="Apply only changes that a saved proposal contains; do not ask.",
)
@click.option("--detach", is_flag=True, help="Return when everything is launched.")
@notify_option
@rank_option(help="The rank whose output is shown: 0 by default.")
@event_option
@output_option()
def command(
    *,
    source: ProjectSource,
    file: str | None,
    names: tuple[str, ...],
    auto_approve: bool,
    reviewed: bool,
    detach: bool,
    notify: bool,
    rank: str | None,
    events: str | None,
    output: str,
    parallelism: int,
    selection: PlanOptions,
) -> int:
    """Plan FILE, ask for approval, carry the plan out and follow its runs.

    FILE is a run file, a project file or a saved plan; by default `sgpu.yml`, else `run.yaml`. With
    NAME, only these runs are applied, as with `--select`.

    While apply follows runs: Ctrl-C detaches after five seconds, and the runs continue. Ctrl-C
    twice cancels the runs. Three times exits at once.

    Exit codes: 0 ok, 1 error, 3 stale or unreviewed plan or locked state, 5 a run failed,
    130 interrupted.
    """
    if detach and rank is not None:
        raise click.UsageError("`--detach` follows no run: leave out `--rank`")
    if detach and notify:
        raise click.UsageError("`--detach` follows no run: leave out `--notify`")
    selection = replace(selection, select=(*names, *selection.select))
    ranks = read_ranks(rank or "0")
    saved = Path(file) if file is not None and is_saved_plan(Path(file)) else None
    alone = ProjectSource(project=source.project, lock_timeout=source.lock_timeout)
    if saved is not None and (source != alone or selection != PlanOptions()):
        raise click.UsageError(
            "a saved plan is applied as it is: target, variables, overrides and selections "
            "belong to `sgpu plan`"
        )
    with event_file(events) as stream:
        session, planned = (
            source.saved(saved) if saved is not None else (source.session(file), selection)
        )
        screen = ApplyScreen(
            session=session,
            events=stream,
            auto=auto_approve,
            reviewed=reviewed,
            ranks=ranks,
            detach=detach,
            notify=notify,
            json=output == "json",
            parallelism=parallelism,
            question="carry out this plan?",
            unattended="look at it and apply it with `-y`, or save it with "
            "`sgpu plan --out run.plan` and apply that",
            replacing="save the plan with `sgpu plan --out run.plan` and apply that, or use "
            "`--on-active queue`",
        )
        return screen.carry_out(planned)
