"""The project that the calls of a program belong to."""

import os
from pathlib import Path

from sgpu_decl.errors import NotFound
from sgpu_decl.functions.origin import program_file
from sgpu_decl.planning.location import Location, current_folder


def call_location(*, project: str | None = None, target: str | None = None) -> "Location":
    """The project and target of this program: the arguments, else the project that `SGPU_PROJECT`
    names, else that of the script or notebook.

    Raises:
        NotFound: the current folder does not exist any more, or `SGPU_PROJECT` names none.
    """
    current_folder()
    folder_variable = os.environ.get("SGPU_PROJECT") or None
    if project is None and folder_variable is not None and not os.path.isdir(folder_variable):
        raise NotFound(
            f"`SGPU_PROJECT` names the folder `{folder_variable}`, which does not exist",
            hint="name another, or unset it: then it is the project that your program lies in",
        )
    folder = project or folder_variable
    return Location(
        file=program_file(),
        project=Path(folder) if folder is not None else None,
        target=target,
    )
