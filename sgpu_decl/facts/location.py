"""Which project, which file, which state: one function answers all three."""

import os
import shlex
import sys
from dataclasses import replace
from pathlib import Path

from sgpu_decl.errors import InvalidInput, NotFound, SgpuError
from sgpu_decl.facts.project_text import ProjectText
from sgpu_decl.frozen_dataclass import dataclass
from sgpu_decl.model.target import BASE, misnamed, target_option
from sgpu_decl.storing.state_folder import state_folder

__all__ = [
    "COMMAND_FILE",
    "DEFAULT_FILES",
    "ROOT_FILE",
    "TARGET_VARIABLE",
    "Location",
    "Opened",
    "absolute",
    "current_folder",
    "open_project",
    "project_above",
    "shell_command",
    "variable_words",
]

COMMAND_FILE = "sgpu run"
"""What stands where a run has its file, if the command line alone describes it."""
ROOT_FILE = "sgpu.yml"
DEFAULT_FILES = (ROOT_FILE, "run.yaml")
TARGET_VARIABLE = "SGPU_TARGET"


@dataclass(frozen=True, slots=True, kw_only=True)
class Location:
    """The options that choose a project and change its file. The target `default` is what is
    applied without a target; with `None`, the environment or the file may name one. `variables` and
    `sets` are pairs of name and text, `variable_files` hold values of variables. `offline` reads a
    shared state as this machine has read it last."""

    file: Path | None = None
    project: Path | None = None
    target: str | None = None
    variables: tuple[tuple[str, str], ...] = ()
    sets: tuple[tuple[str, str], ...] = ()
    variable_files: tuple[Path, ...] = ()
    offline: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Opened:
    """A project that was found.

    Attributes:
        root: its folder, absolute.
        shown: the file as the user named it.
        target: `None` for what is applied without a target.
        target_named: whether `-t` or `SGPU_TARGET` names the target, and not the file.
    """

    root: Path
    file: Path | None
    shown: str
    target: str | None
    state_dir: Path
    target_named: bool = False
    notes: tuple[str, ...] = ()

    @property
    def owner(self) -> str | None:
        """The file relative to the project, as state and plans name it."""
        return None if self.file is None else os.path.relpath(absolute(self.file), self.root)


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


def open_project(location: Location, *, here: Path) -> Opened:
    """Find the project and the target of a command. YAML is parsed only if the file may name the
    target, and nothing else does.

    Raises:
        NotFound: the folder given as project is not there.
        InvalidInput: the file, which may name the target, is no YAML.
        SgpuError: the project or its state cannot lie where they would.
    """
    if location.project is not None and not location.project.is_dir():
        raise NotFound(
            f"project folder `{location.project}` does not exist", hint="give an existing folder"
        )
    file = location.file or _default_file(location.project, here)
    root = (location.project or _nearest(file.parent if file else here)).resolve()
    named = location.target
    if named is None:
        named = os.environ.get(TARGET_VARIABLE) or None
    if named is not None and named != BASE and (hint := misnamed(named)):
        raise SgpuError(
            f"`{named}` is not a valid name for a target{variable_words(named)}",
            hint=hint,
            code="unknown_target",
        )
    target = _default_target(file, root) if named is None else None if named == BASE else named
    state_dir, note = state_folder(root, target or BASE)
    for path in (root, state_dir, *([absolute(file)] if file else [])):
        _refuse_unreadable_name(path)
    return Opened(
        root=root,
        file=file,
        shown=os.fspath(file) if file else "",
        target=target,
        state_dir=state_dir,
        target_named=named is not None,
        notes=(note,) if note else (),
    )


def variable_words(target: str) -> str:
    """Words that follow a target that is wrong, where the environment names it."""
    named = os.environ.get(TARGET_VARIABLE) == target
    return f", which `{TARGET_VARIABLE}` names" if named else ""


def _default_target(file: Path | None, root: Path) -> str | None:
    """The target that the file of a command names. The functions of a program belong to the project
    around it."""
    if file is not None and file.suffix in (".py", ".ipynb"):
        file = root / DEFAULT_FILES[0]
    return None if file is None else ProjectText(file).default_target()


def shell_command(words: str, opened: Opened) -> str:
    """A command about a project, for a shell in the current folder: `sgpu logs 'train#1'`, with the
    target, and with the project or the file if they would not be found from there."""
    target, root = opened.target, opened.root
    where = target_option(target)
    name, *rest = words.split(" ", 2)
    found = Location(target=target or BASE)
    try:
        project = open_project(found, here=current_folder())
        named = opened.file is not None and opened.file.is_file()
        if named and _lacks_file(name, rest) and not _same(project, opened):
            words = " ".join((name, shlex.quote(opened.shown), *rest))
            found = replace(found, file=opened.file)
            project = open_project(found, here=current_folder())
        is_here = project.root == root
    except NotFound:  # the current folder is gone
        is_here = False
    if not is_here:
        where += f" --project {shlex.quote(os.fspath(root))}"
        found = replace(found, project=root)
    if target is None and _names_another(replace(found, target=None)):
        where += f" -t {BASE}"
    return f"`sgpu {words}{where}`"


def _names_another(location: Location) -> bool:
    """Whether a command that names no target is about one all the same."""
    try:
        return open_project(location, here=current_folder()).target is not None
    except (NotFound, InvalidInput):
        return False


def _lacks_file(name: str, rest: list[str]) -> bool:
    """Whether a command reads the default file, as it names none."""
    return name in ("validate", "plan", "apply") and not (rest and not rest[0].startswith("-"))


def _same(one: Opened, other: Opened) -> bool:
    """Whether two are about one file."""
    files = [absolute(opened.file) if opened.file else None for opened in (one, other)]
    return files[0] == files[1]


def _refuse_unreadable_name(path: Path) -> None:
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


def _default_file(project: Path | None, here: Path) -> Path | None:
    """The file to use if none is named: the one of the given project; else the one here; else the
    one of the nearest project above."""
    for folder in (project,) if project else (here, _nearest(here)):
        for name in DEFAULT_FILES:
            if os.path.lexists(folder / name) and not (folder / name).is_dir():
                return Path(os.path.relpath(folder / name, here))
    return None


def project_above(here: Path) -> Path | None:
    """The project that a folder lies in. A folder with a default file is a project itself."""
    if folder := _marked(here):
        return folder
    return here if any((here / name).is_file() for name in DEFAULT_FILES) else None


def _nearest(start: Path) -> Path:
    start = start.resolve()
    return _marked(start) or start


def _marked(here: Path) -> Path | None:
    for folder in (here, *here.parents):
        if (folder / ROOT_FILE).is_file() or (folder / ".sgpu").is_dir():
            return folder
    return None
