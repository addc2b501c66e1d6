"""`sgpu adopt`."""

from pathlib import Path

import click

from sgpu_decl.cli.file_options import file_options
from sgpu_decl.cli.options import ProjectSource, lock_option, output_option
from sgpu_decl.cli.terminal_output import answer, note


@click.command("adopt")
@click.argument("address", metavar="ADDRESS")
@click.argument("job_id", metavar="ID")
@click.argument("file", required=False)
@file_options
@click.option(
    "--write",
    metavar="PATH",
    help="Do not take over the job, but write it as YAML to a new file, with all of its tasks and "
    "their files.",
)
@lock_option
@output_option()
def command(
    *,
    source: ProjectSource,
    address: str,
    job_id: str,
    file: str | None,
    write: str | None,
    output: str,
) -> int:
    """Take over a job of a workspace, by its ID, as the job that FILE declares at ADDRESS.

    ADDRESS is written `job.NAME`. The command changes only the state. `sgpu plan` then shows the
    changes that the next apply would make to the job. If no file declares the job yet, write one
    with `--write jobs/NAME.yml`, add it to `include`, and repeat the command without `--write`.

    Exit codes: 0 ok, 1 error, 3 locked state.
    """
    if write is not None:
        session = source.session(file)
        lost, files = session.jobs.write(address, job_id, Path(write))
        for path in lost:
            note(f"not written: the setting `{path}` of the job, for which the YAML has no field")
        if output == "json":
            answer({"written": write, "lost": list(lost), "files": list(files)})
        else:
            for copied in files[1:]:
                note(f"wrote `{copied}`, a copy of the file in the workspace")
            command = session.complete(f"`sgpu adopt {address} {job_id}`")
            note(f"wrote `{write}`: add it to `include` of the project, then run {command}")
        return 0
    session = source.session(file)
    job = session.jobs.adopt(address, job_id)
    if output == "json":
        answer({"adopted": str(job.address), "id": job_id})
    else:
        command = session.complete("`sgpu plan`")
        note(f"{job.address} is the job {job_id} now; {command} shows what differs")
    return 0
