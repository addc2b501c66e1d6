"""`sgpu results`."""

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from sgpu_decl.api import is_whole_name, split_attempt
from sgpu_decl.cli.completed_by import completed_by
from sgpu_decl.cli.options import ProjectSource, output_option, project_options
from sgpu_decl.cli.progress import slow_step
from sgpu_decl.cli.run_names import open_named
from sgpu_decl.cli.terminal_output import (
    answer,
    answer_exactly,
    note,
    now,
    show,
    show_exactly,
    takes_colour,
)
from sgpu_decl.views.results_table import result_text, secrets_note
from sgpu_decl.views.terminal import count

if TYPE_CHECKING:
    from sgpu_decl.api import Session
    from sgpu_decl.model.attempt import AttemptRef


@click.command("results")
@click.argument(
    "name", required=False, metavar="[NAME|FILE]", shell_complete=completed_by("runs", "files")
)
@project_options
@click.option(
    "--sort",
    metavar="COLUMN",
    help="Sort the table by a column, the lowest first; `--sort -COLUMN` puts the highest first.",
)
@output_option("csv", "markdown")
def command(*, source: ProjectSource, name: str | None, sort: str | None, output: str) -> int:
    """Show the return value of each rank of a run; for several runs, show a table.

    NAME is `train` or `train#8`. FILE means all its runs. Without NAME and FILE, results shows the
    latest run.

    For a matrix, such as `sweep`, or a glob, such as `'sweep*'`, the table has a row for each run:
    the values of its matrix, its state and time, the return value of its first rank, and the last
    value of each MLflow metric. `--sort`, `-o csv` and `-o markdown` print the table for one run,
    too. Values of the run's secrets are masked.
    """
    session, names = open_named(source, (name,) if name else ())
    refs = session.runs.find(*names)
    if names_table(names, refs) or sort is not None or output in ("csv", "markdown"):
        show_table(session, refs, sort=sort, output=output)
    else:
        _show_ranks(session, refs[0], output)
    return 0


def _show_ranks(session: "Session", ref: "AttemptRef", output: str) -> None:
    results = session.runs.results(ref)
    if secrets_warning := secrets_note(ref, results):
        note(secrets_warning)
    if output == "json":
        answer_exactly({"results": results})
        return
    for result in results:
        show_exactly(f"rank {result['rank']}: {result_text(result['value'])}")
    if not results:
        state = session.runs.status(ref).state
        returned = "has returned a value yet" if state.active else "returned a value"
        note(f"no rank of `{ref}` {returned}; its state is {state}")


def names_table(names: Sequence[str], refs: "Sequence[AttemptRef]") -> bool:
    """Whether names stand for a table: a matrix and a glob do, also while they have one run."""
    return len(refs) > 1 or not all(
        is_whole_name(split_attempt(name)[0], ref.address) for name in names for ref in refs
    )


def show_table(
    session: "Session", refs: "Sequence[AttemptRef]", *, sort: str | None, output: str
) -> None:
    """Print the table of attempts in a format: `text`, `markdown`, `csv` or `json`.

    Raises:
        NotFound: there is no column to sort by of that name.
    """
    from sgpu_decl.views.results_table import (
        table_csv,
        table_json,
        table_markdown,
        table_secrets_note,
        table_text,
        unread_lines,
    )

    with slow_step(f"reading results and MLflow metrics of {count(len(refs), 'run')}"):
        table = session.runs.table(refs)
    moment = now()
    for problem in table.problems:
        note(f"warning: metrics are missing from the table: {problem}")
    if warning := table_secrets_note(table.rows):
        show(warning, err=True)
    if sort is not None:
        table = table.sorted_by(sort, moment)
    match output:
        case "json":
            answer(table_json(table, now=moment))
        case "csv":
            show(table_csv(table, now=moment), nl=False)
            for line in unread_lines(table):
                note(line if line.startswith("hint: ") else f"warning: {line}")
        case "markdown":
            show(table_markdown(table, now=moment), nl=False)
        case _:
            show(table_text(table, now=moment, colour=takes_colour(sys.stdout)))
