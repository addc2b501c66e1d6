"""`sgpu adopt`."""

import click

from sgpu_decl.cli.options import Where, output_option, where_options
from sgpu_decl.cli.showing import answer, note

__all__ = ["command"]


@click.command("adopt")
@click.argument("address", metavar="ADDRESS")
@click.argument("job_id", metavar="ID")
@click.argument("file", required=False)
@where_options
@output_option()
def command(*, where: Where, address: str, job_id: str, file: str | None, output: str) -> int:
    """Take over the job ID of a workspace as the one that FILE declares at ADDRESS (`job.NAME`).

    Only the state is written: `sgpu plan` then shows what the next apply would change of the job.

    Exit codes: 0 ok, 1 error, 3 locked state.
    """
    adopted = where.session(file).adopt(address, job_id)
    if output == "json":
        answer({"adopted": str(adopted.address), "id": job_id})
    else:
        note(f"{adopted.address} is the job {job_id} now; `sgpu plan` shows what differs")
    return 0
