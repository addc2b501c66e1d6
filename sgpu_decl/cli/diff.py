"""`sgpu diff`."""

import sys

import click

from sgpu_decl.cli.completed_by import completed_by
from sgpu_decl.cli.options import ProjectSource, output_option, project_options
from sgpu_decl.cli.progress import slow_step
from sgpu_decl.cli.run_names import file_and_names, open_named
from sgpu_decl.cli.terminal_output import answer, now, show, takes_colour
from sgpu_decl.views.attempt_diff_text import attempt_diff_json, attempt_diff_text


@click.command("diff")
@click.argument(
    "before", required=False, metavar="[NAME|FILE]", shell_complete=completed_by("runs", "files")
)
@click.argument("after", required=False, metavar="[OTHER]", shell_complete=completed_by("runs"))
@project_options
@output_option()
def command(*, source: ProjectSource, before: str | None, after: str | None, output: str) -> int:
    """Show what differs between two attempts: config, code, packages, results and metrics.

    With NAME alone, diff compares an attempt with the one before: `train` means its last two
    attempts, `train#8` means `train#7` and `train#8`. Without a NAME, diff takes the latest run.
    NAME and OTHER may be attempts of different runs.

    diff compares the launched code line by line, and says what of it gc has deleted.
    """
    words = tuple(name for name in (before, after) if name)
    file, names = file_and_names(words)
    if file is not None and names:
        raise click.UsageError(f"`{file}` is a file: name two runs, or the file alone")
    session, names = open_named(source, words)
    runs = session.runs
    refs = [runs.find_one(name) for name in names]
    if after is None or len(refs) == 1:
        ref = runs.find_one(*names)
        refs = [runs.previous(ref), ref]
    with slow_step(f"reading code, results and MLflow metrics of {refs[0]} and {refs[1]}"):
        diff = runs.diff(refs[0], refs[1])

    if output == "json":
        answer(attempt_diff_json(diff))
        return 0
    show(attempt_diff_text(diff, now=now(), colour=takes_colour(sys.stdout)))
    return 0
