"""Whose project the calls of a program belong to, and how a shell finds them there."""

import os
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from sgpu_decl.errors import NotFound
from sgpu_decl.functions.origin import program_file

if TYPE_CHECKING:
    from sgpu_decl.api import Session
    from sgpu_decl.applying.opening import Location

__all__ = ["call_location", "shell_command"]


def call_location(*, project: str | None = None, target: str | None = None) -> "Location":
    """The project of this program: the one that is named, here or by `SGPU_PROJECT`, else that of
    the script or notebook; likewise the target.

    Raises:
        NotFound: the current folder does not exist any more, or `SGPU_PROJECT` names none.
    """
    from sgpu_decl.applying.opening import Location, current_folder

    current_folder()
    named = os.environ.get("SGPU_PROJECT") or None
    if project is None and named is not None and not os.path.isdir(named):
        raise NotFound(
            f"`SGPU_PROJECT` names the folder `{named}`, which does not exist",
            hint="name another, or unset it: then it is the project that your program lies in",
        )
    folder = project or named
    return Location(
        file=program_file(),
        project=Path(folder) if folder is not None else None,
        target=target or os.environ.get("SGPU_TARGET") or None,
    )


def shell_command(session: "Session", words: str) -> str:
    """A command about a call, for a shell in the current folder: `sgpu logs 'train#1'`, and where
    the project is if it would not be found from there."""
    from sgpu_decl.api import Location, Session

    where = "" if session.target is None else f" -t {session.target}"
    try:
        found = Session.open(Location(target=session.target)).root == session.root
    except NotFound:  # the current folder is gone
        found = False
    if not found:
        where += f" --project {shlex.quote(os.fspath(session.root))}"
    return f"`sgpu {words}{where}`"
