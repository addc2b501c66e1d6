"""`sgpu graph`."""

import click

from sgpu_decl.cli.error_exit import show_error
from sgpu_decl.cli.file_options import file_argument, file_options
from sgpu_decl.cli.options import ProjectSource
from sgpu_decl.cli.plan_errors import plan_error
from sgpu_decl.cli.progress import open_progress
from sgpu_decl.cli.terminal_output import answer, show
from sgpu_decl.views import graph_text


@click.command("graph")
@file_argument
@file_options
@click.option(
    "--plan", "with_plan", is_flag=True, help="Show the action of `sgpu apply` in each node."
)
@click.option(
    "-o",
    "--output",
    type=click.Choice(["mermaid", "json"]),
    default="mermaid",
    show_default=True,
    help="The format of the output.",
)
def command(*, source: ProjectSource, file: str | None, with_plan: bool, output: str) -> int:
    """Draw the runs, jobs and environments of FILE, and which of them uses which.

    FILE is a run file or a project file; by default `sgpu.yml`, else `run.yaml`. GitHub and GitLab
    draw Mermaid in Markdown.

    Exit codes: 0 ok, 1 the file is not valid, or its plan cannot be applied.
    """
    session = source.session(file)
    graph, error = session.graph(), None
    if with_plan:
        with open_progress() as progress:
            plan = session.plan(progress=progress).plan
        graph, error = graph.planned(plan), plan_error(plan)
    if output == "json":
        answer(graph_text.graph_json(graph), error=error)
    else:
        show(graph_text.graph_mermaid(graph))
        if error is not None:
            show_error(error)
    return error.exit_code if error is not None else 0
