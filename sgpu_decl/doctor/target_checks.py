"""The checks of `sgpu doctor -t TARGET`: the platforms of the target, and this machine."""

from collections.abc import Generator

from sgpu_decl.backends.kinds import is_remote
from sgpu_decl.doctor.machine import check_machine
from sgpu_decl.doctor.platforms import blocks_of
from sgpu_decl.errors import SgpuError
from sgpu_decl.facts.opened_project import OpenedProject
from sgpu_decl.facts.project_file import read_file
from sgpu_decl.model.doctor_finding import Finding, fail

__all__ = ["check_target"]


def check_target(project: OpenedProject, *, in_project: bool) -> Generator[Finding, None, None]:
    """Check the platforms that runs and jobs of the target use, and this machine if some run here.
    Each `backend` block is checked once."""
    try:
        loaded = read_file(project.opened, project.location).loaded
    except SgpuError:  # which the check of the machine says
        yield from check_machine(project, in_project=in_project)
        return
    blocks = blocks_of(loaded)
    elsewhere = [block for block in blocks if is_remote(block.kind)]
    if len(elsewhere) < len(blocks) or not blocks:
        yield from check_machine(project, in_project=in_project)
    for block in elsewhere:
        try:
            yield from project.checks(block).free()
        except SgpuError as error:
            yield fail("backend", error.message, error.hint)
