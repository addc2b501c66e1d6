"""The commands that hints name, made complete for the shell of whoever reads them."""

import os
import re
import shlex
from dataclasses import replace
from pathlib import Path

from sgpu_decl.errors import InvalidInput, NotFound
from sgpu_decl.model.target import BASE
from sgpu_decl.planning.location import Location, absolute
from sgpu_decl.planning.project import Project
from sgpu_decl.planning.project_text import is_saved_plan

_COMMAND = re.compile(r"""`sgpu ([a-z]+)((?: (?:'[^']*'|"[^"]*"|[^`'"])*)?)`""")
_ABOUT_A_PROJECT = frozenset(
    {
        "adopt", "apply", "cancel", "destroy", "fetch", "gc", "logs", "mlflow", "open", "plan",
        "report", "results", "show", "start", "state", "status", "top", "validate", "wait",
    }
)  # fmt: skip
_COMPLETE = re.compile(r" (?:-t|--target|--project|--help)(?: |$)")


def complete(text: str, project: Project) -> str:
    """A text with the commands in backticks made complete for a shell in the current folder: with
    the target, and with the project or the file if they would not be found from there."""

    def completed(match: "re.Match[str]") -> str:
        name, rest = match[1], match[2]
        if name not in _ABOUT_A_PROJECT or _COMPLETE.search(rest) or _of_saved_plan(name, rest):
            return match[0]
        return _shell_command(name + rest, project)

    return _COMMAND.sub(completed, text) if "`sgpu " in text else text


def _of_saved_plan(name: str, rest: str) -> bool:
    """Whether a command is about a saved plan, which names its own project and target."""
    if name not in ("apply", "show"):
        return False
    return any(is_saved_plan(Path(word)) for word in shlex.split(rest) if word[:1] != "-")


def _shell_command(words: str, project: Project) -> str:
    where = "" if project.target is None else f" -t {project.target}"
    name, *rest = words.split(" ", 2)
    location = Location(target=project.target or BASE)
    try:
        found = Project(location)
        named = project.file is not None and project.file.is_file()
        if named and _lacks_file(name, rest) and not _is_same_file(found, project):
            words = " ".join((name, shlex.quote(project.shown), *rest))
            location = replace(location, file=project.file)
            found = Project(location)
        is_here = found.root == project.root
    except NotFound:  # the current folder is gone
        is_here = False
    if not is_here:
        where += f" --project {shlex.quote(os.fspath(project.root))}"
        location = replace(location, project=project.root)
    if project.target is None and _names_another(replace(location, target=None)):
        where += f" -t {BASE}"
    return f"`sgpu {words}{where}`"


def _names_another(location: Location) -> bool:
    """Whether a command that names no target is about one all the same."""
    try:
        return Project(location).target is not None
    except (NotFound, InvalidInput):
        return False


def _lacks_file(name: str, rest: list[str]) -> bool:
    """Whether a command reads the default file, as it names none."""
    return name in ("validate", "plan", "apply") and not (rest and not rest[0].startswith("-"))


def _is_same_file(one: Project, other: Project) -> bool:
    files = [absolute(project.file) if project.file else None for project in (one, other)]
    return files[0] == files[1]
