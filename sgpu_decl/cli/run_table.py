"""Several attempts as a table: what `sgpu results` and `sgpu show` print of a matrix or a glob."""

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from sgpu_decl.api import is_whole_name, split_attempt
from sgpu_decl.cli.slow_step import slow_step
from sgpu_decl.cli.terminal_output import answer, note, now, show, takes_colour
from sgpu_decl.views.terminal import count

if TYPE_CHECKING:
    from sgpu_decl.api import Session
    from sgpu_decl.model.attempt import AttemptRef


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
    from sgpu_decl.views.results_text import table_secrets_note
    from sgpu_decl.views.run_table_text import (
        table_csv,
        table_json,
        table_markdown,
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
