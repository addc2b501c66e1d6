"""`sgpu adopt --write`: an existing job of a workspace as files of the project."""

import re
from pathlib import Path

from sgpu_decl.config.backend import read_backend
from sgpu_decl.errors import NotFound, SgpuError, Usage
from sgpu_decl.model.address import NAME
from sgpu_decl.model.backend_kinds import job_platform
from sgpu_decl.planning.project import Project


def write_job(
    project: Project, text: str, job_id: str, path: Path
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """See `ProjectJobs.write`. Nothing is written if one of the files exists."""
    name = text.removeprefix("job.")
    if re.fullmatch(NAME, name) is None:
        raise Usage(f"`{text}` is no address of a job", hint="write `job.NAME`")
    if not job_id.isdecimal():
        raise SgpuError(
            f"`{job_id}` is no id of a job",
            hint="it is the number at the end of the job's URL",
            code="bad_id",
        )
    block = read_backend(job_platform().name)
    backend = project.job_backend(block)
    document = backend.read(job_id)
    if document is None:
        raise NotFound(
            f"`{backend.workspace}` has no job {job_id}", hint="look at its list of jobs"
        )
    written = backend.written(document, name)
    import yaml

    from sgpu_decl.text.yaml_format import formatted

    lines = yaml.safe_dump(
        {"jobs": {name: dict(written.block)}}, sort_keys=False, allow_unicode=True, width=100
    )
    tidy, _ = formatted(lines, str(path))
    files = {path: (tidy or lines).encode()} | {
        path.parent / file: content for file, content in written.files.items()
    }
    for file in files:
        if file.exists():
            raise SgpuError(f"`{file}` exists", hint="name a file in another folder", code="exists")
    for file, content in files.items():
        file.parent.mkdir(parents=True, exist_ok=True)
        with file.open("xb") as new:
            new.write(content)
    return written.lost, tuple(map(str, files))
