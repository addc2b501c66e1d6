"""The platforms that the runs and jobs of a file use."""

from sgpu_decl.backends.kinds import is_remote
from sgpu_decl.backends.platform_checks import PlatformChecks
from sgpu_decl.config.backend import BackendOptions
from sgpu_decl.config.loaded import Loaded
from sgpu_decl.facts.job_facts import DeclaredJobs
from sgpu_decl.facts.location import Location
from sgpu_decl.facts.opened_project import OpenedProject
from sgpu_decl.facts.project_file import read_file

__all__ = ["blocks_of", "platforms_of"]


def blocks_of(loaded: Loaded) -> tuple[BackendOptions, ...]:
    """The different `backend` blocks of a file's runs and jobs."""
    jobs = DeclaredJobs.of(loaded, "")
    blocks = (
        *(run.config.backend for run in loaded.runs),
        *(jobs.backend_of(job) for job in loaded.jobs),
    )
    return tuple(dict.fromkeys(blocks))


def platforms_of(project: OpenedProject, location: Location) -> tuple[PlatformChecks, ...]:
    """Return what can be measured of each platform that the target of a file uses.

    Raises:
        NotFound: there is no file.
        InvalidInput: it holds errors.
        BackendError: all of it runs on this machine.
    """
    loaded = read_file(project.opened, location).loaded
    blocks = blocks_of(loaded)
    elsewhere = [block for block in blocks if is_remote(block.kind)]
    return tuple(project.checks(block) for block in elsewhere or blocks)
