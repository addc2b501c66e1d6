"""`sgpu adopt --write`: an existing job of a workspace as a file of the project."""

import re
from pathlib import Path

from sgpu_decl.config.backend import read_backend
from sgpu_decl.errors import NotFound, SgpuError, Usage
from sgpu_decl.model.address import NAME
from sgpu_decl.model.backend_kinds import only_kind
from sgpu_decl.planning.project import Project


def write_job(project: Project, text: str, job_id: str, path: Path) -> tuple[str, ...]:
    """See `ProjectJobs.write`."""
    name = text.removeprefix("job.")
    if re.fullmatch(NAME, name) is None:
        raise Usage(f"`{text}` is no address of a job", hint="write `job.NAME`")
    if not job_id.isdecimal():
        raise SgpuError(
            f"`{job_id}` is no id of a job",
            hint="it is the number at the end of the job's URL",
            code="bad_id",
        )
    block = read_backend(only_kind("keeps notebooks", lambda kind: kind.jobs).name)
    backend = project.job_backend(block)
    document = backend.read(job_id)
    if document is None:
        raise NotFound(
            f"`{backend.workspace}` has no job {job_id}", hint="look at its list of jobs"
        )
    written = backend.written(document, name)
    import yaml

    lines = yaml.safe_dump(
        {"jobs": {name: dict(written.block)}}, sort_keys=False, allow_unicode=True, width=100
    )
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("x", encoding="utf-8") as file:
            file.write(lines)
    except FileExistsError as error:
        raise SgpuError(
            f"`{path}` exists", hint="name a file that does not", code="exists"
        ) from error
    return written.lost
