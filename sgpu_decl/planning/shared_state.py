"""Which store a project names for its state. A file without the key `state` is parsed and not
validated, so commands on a state of this machine need no pydantic."""

import os
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

from sgpu_decl.model.target import Mode
from sgpu_decl.planning.location import ROOT_FILE, absolute
from sgpu_decl.planning.project_text import YAML_SUFFIXES, ProjectText, invalid_file
from sgpu_decl.storing.stores import SharedPlace

if TYPE_CHECKING:
    from sgpu_decl.config.file_reader import Overrides
    from sgpu_decl.config.state_reader import DeclaredState
    from sgpu_decl.diagnostics.diagnostic import Diagnostic
    from sgpu_decl.planning.project import Project

_BLOCK = tuple(field.name for field in fields(SharedPlace) if field.name != "project")


def shared_place(project: "Project") -> SharedPlace | None:
    """Where machines share the state of a target; None where each machine has its own.

    Raises:
        InvalidInput: the file names a store, and the block is wrong; or another file names one.
    """
    misplaced = misplaced_state(project)
    file = project.root / ROOT_FILE
    declared, findings = _declared(file, project)
    if misplaced or findings:
        _refuse(project.shown, misplaced)
        _refuse(os.path.relpath(file), findings)
    if declared is None:
        return None
    key = _key(declared.project, declared.mode)
    return SharedPlace(project=key, **{name: getattr(declared.block, name) for name in _BLOCK})


def _refuse(file: str, findings: "tuple[Diagnostic, ...]") -> None:
    from sgpu_decl.diagnostics.diagnostic import has_errors

    if has_errors(findings):
        raise invalid_file(file, findings)


def misplaced_state(project: "Project") -> "tuple[Diagnostic, ...]":
    """The error of a project file which names a store, and is not the one whose store counts: all
    commands of a project have to find the same state, also those that name no file."""
    file = project.file
    if file is None or absolute(file) == project.root / ROOT_FILE:
        return ()
    if file.suffix not in YAML_SUFFIXES:
        return ()
    declared, _ = _declared(file, project)
    if declared is None:
        return ()
    from sgpu_decl.diagnostics.diagnostic import Diagnostic

    counts = os.path.relpath(project.root / ROOT_FILE)
    return (
        Diagnostic(
            code="misplaced_state",
            summary=f"a shared state is named in `{counts}` alone, and this is another file",
            place=declared.place,
            hint=f"move `state` to `{counts}`; to keep both files, give each a folder of its own, "
            f"with the name `{ROOT_FILE}`",
        ),
    )


def _declared(
    file: Path, project: "Project"
) -> "tuple[DeclaredState | None, tuple[Diagnostic, ...]]":
    """What a file says about the state of a target."""

    def overrides() -> "Overrides":
        from sgpu_decl.planning.project_file import overrides_of

        return overrides_of(project)

    return ProjectText(file, os.path.relpath(file)).state(overrides)


def _key(project: str, mode: Mode) -> str:
    """Developers do not meet: each of them has a state of their own."""
    if mode is not Mode.DEVELOPMENT:
        return project
    import getpass

    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # no such user in this container
        user = str(os.getuid())
    return f"{project}@{quote(user, safe='')}"
