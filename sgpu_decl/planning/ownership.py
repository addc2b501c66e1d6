"""Two files that declare the same run: a warning. A renamed file, or a run that moved to another
file, gives none. A run that a command line describes has no file; it takes no name of a file."""

import os
import shlex
from collections.abc import Iterable
from pathlib import Path

from sgpu_decl.diagnostics.diagnostic import Diagnostic, Severity
from sgpu_decl.errors import SgpuError
from sgpu_decl.model.address import Address
from sgpu_decl.planning.location import COMMAND_FILE, DEFAULT_FILES, absolute
from sgpu_decl.planning.project import Project
from sgpu_decl.planning.project_text import ProjectText


class Owners:
    """The files of one project, and the names of the runs that each declares; read at most once."""

    def __init__(self, root: Path, now: Iterable[Path] = ()) -> None:
        """`now` are the files that are planned: no run is in dispute between two of them."""
        self._root = root
        self._now = {os.path.realpath(file) for file in now}
        self._names: dict[str, tuple[str, ...]] = {}

    def dispute(self, address: Address, before: str, now: str) -> tuple[Diagnostic, ...]:
        """Warn if the file that a run was last applied from still declares it, beside `now`.

        Args:
            before: the file that owned the run, relative to the project.
            now: the file that is planned.
        """
        if os.path.realpath(self._root / before) in self._now:
            return ()
        if before not in self._names:
            self._names[before] = declared_runs(self._root / before)
        if address.name not in self._names[before]:
            return ()
        return (
            Diagnostic(
                code="owner_changed",
                severity=Severity.WARNING,
                summary=f"`{before}` declares this run too, and applied it last; now `{now}` "
                "owns it",
                hint="rename one of the two runs, or take it out of one of the files",
            ),
        )


def refuse_declared(name: str, project: Project, owners: Iterable[str]) -> None:
    """Check that no file declares a run of this name: neither a default file of the project or of
    the planned file's folder, nor one that such a run was applied from.

    Args:
        owners: the files, relative to the project, that runs of the name were applied from.

    Raises:
        SgpuError: a file declares it.
    """
    folders = {project.root, absolute(project.file).parent if project.file else project.root}
    files = {folder / default for folder in folders for default in DEFAULT_FILES}
    for file in sorted({*files, *(project.root / owner for owner in owners)}):
        if name in declared_runs(file):
            shown = os.path.relpath(file)
            raise SgpuError(
                f"`{shown}` declares a run `{name}`",
                hint="give this one another name with `--name`; "
                f"`sgpu apply {shlex.quote(shown)}` launches the one of the file",
                code="name_declared",
            )


def lost_files(root: Path, owners: Iterable[str]) -> frozenset[str]:
    """The files of a project that are not there any more, of those that own runs. A command line
    is no file."""
    return frozenset(
        owner
        for owner in owners
        if Path(owner).name != COMMAND_FILE and not os.path.lexists(root / owner)
    )


def declared_runs(file: Path) -> tuple[str, ...]:
    """The names of runs as they are written in a file."""
    return () if file.name == COMMAND_FILE else ProjectText(file).declared_runs()
