"""Where tests make their folders: below no project. A search for the project of a folder goes up to
`/`, so a stray `/tmp/sgpu.yml` would make one project of all of them."""

import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import pytest

from sgpu_decl.planning.location import project_above

__all__ = ["choose_temporary_root", "free_of_projects"]

_OTHERS: Final = ("/var/tmp", "/dev/shm")


def choose_temporary_root(basetemp: str | None) -> None:
    """Let this process and its children take the first folder for temporary files that is free.

    Args:
        basetemp: the folder that the user names for those of tests.

    Raises:
        pytest.UsageError: none is free, or that one is not.
    """
    if basetemp is not None and (found := project_above(Path(basetemp).absolute())):
        raise pytest.UsageError(f"`--basetemp` lies in a project: remove it from `{found}`")
    given = tempfile.gettempdir()
    chosen = free_of_projects((given, *_OTHERS))
    if chosen is None:
        raise pytest.UsageError(f"`{given}` lies in a project: remove `sgpu.yml` and `.sgpu` there")
    if chosen != given:
        os.environ["TMPDIR"] = tempfile.tempdir = chosen


def free_of_projects(folders: Sequence[str]) -> str | None:
    """The first of the folders that lies in no project and may be written."""
    for folder in folders:
        if os.access(folder, os.W_OK) and project_above(Path(folder).resolve()) is None:
            return folder
    return None
