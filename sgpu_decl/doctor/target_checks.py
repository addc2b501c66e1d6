"""The checks of `sgpu doctor -t TARGET`: the platforms of the target, and this machine."""

from collections.abc import Generator

from sgpu_decl.backends.platform_checks import PlatformChecks
from sgpu_decl.config.backend import BackendOptions
from sgpu_decl.doctor.machine import check_machine
from sgpu_decl.errors import SgpuError
from sgpu_decl.facts.job_facts import DeclaredJobs
from sgpu_decl.facts.project import Project
from sgpu_decl.facts.project_file import read_file
from sgpu_decl.model.backend_kinds import is_remote
from sgpu_decl.model.doctor_finding import Finding, fail

__all__ = ["check_target", "platforms_of"]


def check_target(project: Project, *, in_project: bool) -> Generator[Finding, None, None]:
    """Check the platforms that runs and jobs of the target use, and this machine if some run here.
    Each `backend` block is checked once."""
    try:
        blocks, elsewhere = _blocks(project)
    except SgpuError:  # the check of the machine reports it
        yield from check_machine(project, in_project=in_project)
        return
    if len(elsewhere) < len(blocks) or not blocks:
        yield from check_machine(project, in_project=in_project)
    for block in elsewhere:
        try:
            yield from project.checks(block).free()
        except SgpuError as error:
            yield fail("backend", error.message, error.hint)


def platforms_of(project: Project) -> tuple[PlatformChecks, ...]:
    """Return what can be measured of each platform that the target of the project's file uses.

    Raises:
        NotFound: there is no file.
        InvalidInput: it holds errors.
        BackendError: all of it runs on this machine.
    """
    blocks, elsewhere = _blocks(project)
    return tuple(project.checks(block) for block in elsewhere or blocks)


def _blocks(project: Project) -> tuple[list[BackendOptions], list[BackendOptions]]:
    """The different `backend` blocks of the runs and jobs of the file, and those of platforms."""
    loaded = read_file(project).loaded
    jobs = DeclaredJobs.of(loaded, "")
    blocks: list[BackendOptions] = []
    for block in (
        *(run.config.backend for run in loaded.runs),
        *(jobs.backend_of(job) for job in loaded.jobs),
    ):
        if block not in blocks:  # a block with a mapping has no hash
            blocks.append(block)
    return blocks, [block for block in blocks if is_remote(block.kind)]
