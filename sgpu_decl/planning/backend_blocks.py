"""The `backend` blocks that the files of a checkout name. Credentials of its user go only where
these, the environment or a profile of the user say, whatever a state that machines share says."""

import copy
import os
from dataclasses import replace
from typing import TYPE_CHECKING

from sgpu_decl.errors import SgpuError
from sgpu_decl.planning.location import ROOT_FILE
from sgpu_decl.planning.project_file import read_file

if TYPE_CHECKING:
    from sgpu_decl.config.backend import BackendOptions
    from sgpu_decl.planning.project import Project


def backend_blocks(project: "Project", owner: str) -> "tuple[BackendOptions, ...]":
    """Return the blocks of the runs and jobs in the project's file, and in the file `owner` of a
    run, for the target. A file that cannot be read names nothing."""
    root = os.path.realpath(project.root)
    blocks: list[BackendOptions] = []
    for name in dict.fromkeys((ROOT_FILE, owner)):
        file = project.root / name
        if not name or not os.path.realpath(file).startswith(f"{root}{os.sep}"):
            continue
        other = copy.copy(project)
        other.file, other.location = file, replace(project.location, sets=())
        try:
            loaded = read_file(other).loaded
        except SgpuError:
            continue
        blocks += [run.config.backend for run in loaded.runs]
        blocks += [job.config.backend for job in loaded.jobs if job.config.backend is not None]
    return tuple(blocks)
