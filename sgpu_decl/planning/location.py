"""The options that choose a project, and where its file and its folder are."""

import os
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from sgpu_decl.errors import NotFound, SgpuError
from sgpu_decl.frozen_dataclass import dataclass
from sgpu_decl.model.argument_checks import checked_fields
from sgpu_decl.model.target import BASE, misnamed
from sgpu_decl.planning.project_text import ProjectText

COMMAND_FILE = "sgpu run"
"""What stands where a run has its file, if the command line alone describes it."""
ROOT_FILE = "sgpu.yml"
DEFAULT_FILES = (ROOT_FILE, "run.yaml")
TARGET_VARIABLE = "SGPU_TARGET"


@checked_fields
@dataclass(frozen=True, slots=True, kw_only=True)
class Location:
    """The options that choose a project and change its file. The target `default` is what is
    applied without a target; with `None`, the environment or the file may name one. `variables` and
    `sets` are pairs of name and text, `variable_files` hold values of variables. `offline` reads a
    shared state as this machine has read it last. Texts do for paths, dictionaries for pairs."""

    file: Path | None = None
    project: Path | None = None
    target: str | None = None
    variables: tuple[tuple[str, str], ...] = ()
    sets: tuple[tuple[str, str], ...] = ()
    variable_files: tuple[Path, ...] = ()
    offline: bool = False

    if TYPE_CHECKING:  # what `checked_fields` takes

        def __init__(
            self,
            *,
            file: str | Path | None = ...,
            project: str | Path | None = ...,
            target: str | None = ...,
            variables: Mapping[str, str] | Iterable[tuple[str, str]] = ...,
            sets: Mapping[str, str] | Iterable[tuple[str, str]] = ...,
            variable_files: Iterable[str | Path] = ...,
            offline: bool = ...,
        ) -> None: ...


def absolute(file: Path) -> Path:
    """The absolute path of a file, with the links in its folder resolved. The file itself may be a
    link: the code and the state belong to the folder of the link."""
    return file.parent.resolve() / file.name


def current_folder() -> Path:
    """The folder that the command was called in.

    Raises:
        NotFound: it was deleted meanwhile.
    """
    try:
        return Path.cwd()
    except FileNotFoundError:
        raise NotFound(
            "the current folder does not exist any more", hint="change to a folder that exists"
        ) from None


def variable_words(target: str) -> str:
    """Words that follow a target that is wrong, where the environment names it."""
    named = os.environ.get(TARGET_VARIABLE) == target
    return f", which `{TARGET_VARIABLE}` names" if named else ""


def chosen_target(location: Location, file: Path | None, root: Path) -> tuple[str | None, bool]:
    """The target of a command, and whether `-t` or `SGPU_TARGET` names it, and not the file. The
    functions of a program belong to the project around it.

    Raises:
        InvalidInput: the file, which may name the target, is no YAML.
        SgpuError: no target has such a name.
    """
    named = location.target
    if named is None:
        named = os.environ.get(TARGET_VARIABLE) or None
    if named is not None:
        if named != BASE and (hint := misnamed(named)):
            raise SgpuError(
                f"`{named}` is not a valid name for a target{variable_words(named)}",
                hint=hint,
                code="unknown_target",
            )
        return None if named == BASE else named, True
    if file is not None and file.suffix in (".py", ".ipynb"):
        file = root / DEFAULT_FILES[0]
    return None if file is None else ProjectText(file).default_target(), False


def refuse_unreadable_name(path: Path) -> None:
    """Refuse a path that is not valid text: state, plans and the node agent keep paths as text."""
    try:
        os.fspath(path).encode()
    except UnicodeEncodeError:
        encoding = sys.getfilesystemencoding()
        raise SgpuError(
            f"`{path}` cannot be used: its name is no text in the encoding `{encoding}`",
            hint="rename the folder or file"
            if encoding == "utf-8"
            else "use a UTF-8 locale: `export LC_ALL=C.UTF-8`",
            code="state_unreachable",
        ) from None


def default_file(project: Path | None, here: Path) -> Path | None:
    """The file to use if none is named: the one of the given project; else the one here; else the
    one of the nearest project above."""
    for folder in (project,) if project else (here, nearest_project(here)):
        for name in DEFAULT_FILES:
            if os.path.lexists(folder / name) and not (folder / name).is_dir():
                return Path(os.path.relpath(folder / name, here))
    return None


def project_above(here: Path) -> Path | None:
    """The project that a folder lies in. A folder with a default file is a project itself."""
    if folder := _marked(here):
        return folder
    return here if any((here / name).is_file() for name in DEFAULT_FILES) else None


def nearest_project(start: Path) -> Path:
    """The project that a folder lies in, or else the folder itself."""
    start = start.resolve()
    return _marked(start) or start


def _marked(here: Path) -> Path | None:
    for folder in (here, *here.parents):
        if (folder / ROOT_FILE).is_file() or (folder / ".sgpu").is_dir():
            return folder
    return None
