"""`sgpu gpus`."""

import click

from sgpu_decl.cli.options import ProjectSource, output_option, project_options
from sgpu_decl.cli.terminal_output import answer, note, show
from sgpu_decl.model.codec import to_json
from sgpu_decl.views.gpus_text import gpus_table


@click.command("gpus")
@project_options
@output_option()
def command(*, source: ProjectSource, output: str) -> int:
    """List the types of GPU that runs can ask for: how many are free, and where.

    gpus asks the backends of the runs in the project file; without a file, it looks at this
    machine. A platform that does not say what is free has a `?`.

    Exit codes: 0 ok, 1 a backend does not answer.
    """
    offers, silent = source.session().doctor.gpus()
    if output == "json":
        answer({"gpus": to_json(offers), "unavailable": [error.message for error in silent]})
    elif offers:
        show(gpus_table(offers))
    elif not silent:
        show("there are no GPUs")
        note("hint: `type: CPU` starts ranks without one; `sgpu doctor` says what it looked at")
    for error in silent if output != "json" else ():
        note(f"warning: {error.message}" + (f"; {error.hint}" if error.hint else ""))
    return 1 if silent else 0
