"""`sgpu fetch`."""

import click

from sgpu_decl.cli.completed_by import completed_by
from sgpu_decl.cli.options import ProjectSource, output_option, project_options
from sgpu_decl.cli.progress import open_progress
from sgpu_decl.cli.run_names import open_named
from sgpu_decl.cli.terminal_output import answer, note, show
from sgpu_decl.model.codec import to_json
from sgpu_decl.views.terminal import count, size


@click.command("fetch")
@click.argument(
    "name", required=False, metavar="[NAME|FILE]", shell_complete=completed_by("runs", "files")
)
@project_options
@output_option()
def command(*, source: ProjectSource, name: str | None, output: str) -> int:
    """Download the files that ranks wrote to SGPU_OUTPUT_DIR, and print their folder.

    NAME is `train` or `train#8`. FILE is the file of a run. Without NAME and FILE, the latest run
    is meant.

    fetch does not download a file twice. Files of a run on this machine are here already.

    Exit codes: 0 ok, 1 error or missing files.
    """
    session, names = open_named(source, (name,) if name else ())
    ref = session.runs.find_one(*names)
    with open_progress() as progress:
        result = session.runs.output(ref, progress)
    if output == "json":
        answer(to_json(result))
        return 1 if result.lacking else 0

    show(str(result.folder))
    if result.files:
        note(f"{count(result.files, 'file')}, {size(result.bytes)}")
    else:
        note(f"the ranks of `{ref}` wrote no file to SGPU_OUTPUT_DIR")
    if (state := session.runs.status(ref).state).active:
        note(f"`{ref}` is {state}: its ranks may still write")
    if not result.lacking:
        return 0
    first = ", ".join(f"`{item}`" for item in result.lacking[:3])
    more = f" and {len(result.lacking) - 3:,} more" if len(result.lacking) > 3 else ""
    note(f"warning: not there: {first}{more}; {result.why}")
    return 1
