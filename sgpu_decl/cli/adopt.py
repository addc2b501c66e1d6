"""`sgpu adopt`."""

import click

from sgpu_decl.cli.file_options import file_options
from sgpu_decl.cli.options import ProjectSource, lock_option, output_option
from sgpu_decl.cli.terminal_output import answer, note


@click.command("adopt")
@click.argument("address", metavar="ADDRESS")
@click.argument("job_id", metavar="ID")
@click.argument("file", required=False)
@file_options
@lock_option
@output_option()
def command(
    *, source: ProjectSource, address: str, job_id: str, file: str | None, output: str
) -> int:
    """Take over a job of a workspace, by its ID, as the job that FILE declares at ADDRESS.

    ADDRESS is written `job.NAME`. The command changes only the state. `sgpu plan` then shows the
    changes that the next apply would make to the job.

    Exit codes: 0 ok, 1 error, 3 locked state.
    """
    job = source.session(file).jobs.adopt(address, job_id)
    if output == "json":
        answer({"adopted": str(job.address), "id": job_id})
    else:
        note(f"{job.address} is the job {job_id} now; `sgpu plan` shows what differs")
    return 0
