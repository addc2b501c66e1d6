"""`sgpu plan`."""

import math
import re
import shlex
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from sgpu_decl.cli.event_file import event_file, event_option
from sgpu_decl.cli.file_options import (
    file_options,
    selection_options,
    strict_option,
    words_argument,
)
from sgpu_decl.cli.next_steps import complete_plan, plan_object
from sgpu_decl.cli.options import (
    ProjectSource,
    limit_option,
    offline_option,
    output_option,
)
from sgpu_decl.cli.terminal_output import annotate, answer, note, now, plan_text, show, show_pieces
from sgpu_decl.model.plan_options import PlanOptions

if TYPE_CHECKING:
    from sgpu_decl.api import Prepared
    from sgpu_decl.model.jsonable import Json
    from sgpu_decl.model.plan import Plan
    from sgpu_decl.model.proposal import Proposal

_LINK = re.compile(r"https?://[^\s/@\\]{1,300}(/[!-~]{0,2000})?", re.ASCII)


def _link(_: click.Context, parameter: click.Parameter, text: str | None) -> str | None:
    if text is not None and not _LINK.fullmatch(text):
        raise click.BadParameter(
            "give the address of a page, such as `https://host/pull/1`, without user and password",
            param=parameter,
        )
    return text


@click.command("plan")
@words_argument
@file_options
@offline_option
@selection_options
@click.option(
    "--trust-project",
    is_flag=True,
    help="Run interpreters that lie inside the project, and build packages that have no wheel.",
)
@click.option(
    "--propose",
    is_flag=True,
    help="Save this plan as a proposal that `sgpu apply --reviewed` accepts.",
)
@click.option(
    "--propose-link",
    metavar="URL",
    callback=_link,
    help="The pull request in which the proposal is reviewed. Implies `--propose`.",
)
@click.option("--out", metavar="FILE", help="Save the plan for `sgpu apply FILE`.")
@click.option(
    "--files",
    is_flag=True,
    help="List the files that are sent as code, and why others are excluded.",
)
@click.option(
    "--blame",
    is_flag=True,
    help="Show where each value comes from: file, target, variable or option.",
)
@click.option(
    "--base",
    metavar="REF",
    help="Plan the files at REF too, and mark the changes that this branch causes.",
)
@strict_option("Treat warnings as errors: the plan cannot be applied.")
@click.option("--detailed-exitcode", is_flag=True, help="Exit with 2 if something would change.")
@event_option
@output_option("markdown", "github")
@limit_option
def command(
    *,
    source: ProjectSource,
    file: str | None,
    names: tuple[str, ...],
    out: str | None,
    propose: bool,
    propose_link: str | None,
    files: bool,
    trust_project: bool,
    blame: bool,
    base: str | None,
    strict: bool,
    detailed_exitcode: bool,
    events: str | None,
    output: str,
    limit: int | None,
    selection: PlanOptions,
) -> int:
    """Show what `sgpu apply FILE` would change, and why. Nothing is changed.

    FILE is a run file or a project file; by default `sgpu.yml`, else `run.yaml`. With NAME, only
    these runs are planned, as with `--select`.

    Exit codes: 0 ok, 1 the plan cannot be applied, 2 something would change (only with
    --detailed-exitcode).
    """
    from sgpu_decl.cli.approval import has_changes
    from sgpu_decl.cli.error_exit import show_error
    from sgpu_decl.cli.plan_errors import plan_error
    from sgpu_decl.cli.progress import open_progress

    refuse_limit(limit, output=output)
    if blame and output not in ("text", "json"):
        raise click.UsageError(f"`--blame` is for text and JSON: leave it or `-o {output}` out")
    if source.offline and (propose or propose_link is not None):
        raise click.UsageError("a proposal is kept with the state: leave it or `--offline` out")
    if out is not None:
        from sgpu_decl.api import refuse_taken

        refuse_taken(Path(out))  # before planning costs anything
    selection = replace(selection, select=(*names, *selection.select), strict=strict)
    with event_file(events) as stream:
        session = source.session(file)
        with open_progress() as progress:
            prepared = session.plan(
                selection, progress=progress, trust_project=trust_project, base=base
            )
        plan = prepared.plan
        stream.plan(prepared)
        error = plan_error(plan)
        if out is not None and error is None:
            with open_progress() as progress:
                session.save(prepared, Path(out), progress=progress)
        proposing = error is None and (propose or propose_link is not None)
        # Before anything is shown: if it fails, its error is the one answer of `-o json`.
        proposal = session.propose(prepared, link=propose_link) if proposing else None
        if output == "json":
            data: dict[str, Json] = plan_object(prepared)
            if blame:
                from sgpu_decl.views.blame_text import with_origins

                data = with_origins(data, plan, session.field_origins(plan))
            answer({**data, "files": _files_json(prepared)} if files else data, error=error)
        else:
            show_plan(prepared, output=output, limit=limit, files=files)
            if blame:
                from sgpu_decl.views.blame_text import blame_text
                from sgpu_decl.views.plan_job_fields import in_words_of_yaml

                told = in_words_of_yaml(plan)
                show(f"\n{blame_text(told, session.field_origins(told))}", nl=False)
            if error is not None:
                show_error(error)
        if proposing:
            note(_proposed_words(proposal))
        if out is not None and error is None:
            note(f"saved to `{out}`: apply exactly this with `sgpu apply {shlex.quote(out)}`")
        return stream.ended(error, 2 if detailed_exitcode and has_changes(plan) else 0)


def _proposed_words(proposal: "Proposal | None") -> str:
    if proposal is None:
        return "nothing would change: there is nothing to propose"
    command = f"`sgpu apply{' --heal' if proposal.heals else ''} --reviewed`"
    if len(proposal.effects) == 1:
        return f"proposed 1 change: once it is reviewed, apply it with {command}"
    count = f"{len(proposal.effects):,}"
    return f"proposed {count} changes: once they are reviewed, apply them with {command}"


def _files_json(prepared: "Prepared") -> "list[Json]":
    from sgpu_decl.views.code_files import files_json

    return files_json(prepared.code_trees, prepared.counted)


def refuse_limit(limit: int | None, *, output: str) -> None:
    """Refuse `--limit` where nothing is shortened."""
    if limit is not None and output != "markdown":
        raise click.UsageError("`--limit` shortens Markdown: add `-o markdown`, or leave it out")


def show_plan(prepared: "Prepared", *, output: str, limit: int | None, files: bool = False) -> None:
    """The plan for people, on stdout, and then the `files` of its code."""
    if output == "markdown":
        from sgpu_decl.views.plan_markdown import LIMIT

        _show_markdown(prepared, limit=LIMIT if limit is None else limit, files=files)
        return
    if output == "github":
        _annotate(prepared.plan)
    else:
        show(plan_text(prepared.plan, sys.stdout), nl=False)
    if files:
        from sgpu_decl.views.code_files import files_text

        show(f"\n{files_text(prepared.code_trees, prepared.counted)}", nl=False)


def _annotate(plan: "Plan") -> None:
    from sgpu_decl.views.github_commands import check_finding
    from sgpu_decl.views.plan_words import summary_line

    annotate([check_finding(check) for check in complete_plan(plan).checks])
    show(summary_line(plan))


def _show_markdown(prepared: "Prepared", *, limit: int, files: bool) -> None:
    from sgpu_decl.views.plan_markdown import LEAST_LIMIT, render

    block = ""
    if files:
        from sgpu_decl.views.code_files import files_markdown

        half = (limit - LEAST_LIMIT) // 2
        room = half if limit else math.inf
        block = f"\n{files_markdown(prepared.code_trees, prepared.counted, room=room)}"
    rest = limit - len(block.encode()) if limit else 0
    show_pieces(render(complete_plan(prepared.plan), now=now(), limit=rest))
    show(block, nl=False)
