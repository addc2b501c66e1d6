"""The shell commands of other tools as `command` of a run, and the packages that they install."""

import re
import shlex
from collections.abc import Callable, Mapping, Sequence

from sgpu_decl.frozen_dataclass import dataclass
from sgpu_decl.importing.translation import Keys, Translation, carried, changed, put
from sgpu_decl.model.jsonable import Json

_INSTALL = re.compile(r"(?:python3? -m |uv )?pip3? install\b(.*)")
_SHEBANG = re.compile(r"\A#!.*\n")
_QUIET = frozenset({"-q", "--quiet", "-U", "--upgrade", "--no-cache-dir", "--system"})
_REQUIREMENT = re.compile(r"[A-Za-z0-9][\w.-]*(\[[\w.,-]+\])?([=<>!~]=?[\w.*+!,<>=~-]+)?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Shell:
    """How a tool runs commands.

    Attributes:
        options: the line that gives `bash -euo pipefail` the tool's own options; empty if these
            are the same.
        variables: the variables that the tool sets, and what has the same value here.
        prefix: how the names of all of its variables begin.
        partly: those of them with the addresses of all nodes, where sgpu has that of the first.
    """

    options: str = ""
    variables: Mapping[str, str]
    partly: frozenset[str] = frozenset()
    prefix: str | None = None


def command_of(text: str, shell: Shell, *puts: tuple[Keys, Json]) -> Translation:
    """The script that each node of a run executes. Variables of the tool are set in front of it."""
    text = _SHEBANG.sub("", text)
    named = [name for name in shell.variables if re.search(rf"\b{name}\b", text)]
    sets = [f'export {name}="{shell.variables[name]}"' for name in named]
    script = "\n".join(([shell.options] if shell.options else []) + sets + [text])
    all_puts = (put("command", script), put("launch.per", "node"), *puts)
    own = re.findall(rf"\b{shell.prefix}[A-Z_]+\b", text) if shell.prefix else []
    unknown = [name for name in own if name not in shell.variables]
    if not named and not unknown:
        return carried(*all_puts)
    listed = ", ".join(f"`{name}`" for name in named)
    note = f"its first lines give {listed} their values" if named else "it uses variables"
    if unknown:
        hint = f"sgpu has nothing for `{unknown[0]}`: do without it"
    elif partly := [name for name in named if name in shell.partly]:
        hint = f"`{partly[0]}` is the address of the first node alone: see that this is enough"
    else:
        hint = None
    return changed(note, *all_puts, hint=hint)


def packages(
    lines: Sequence[str], located: Callable[[str], str] = str
) -> tuple[tuple[tuple[Keys, Json], ...], int]:
    """The packages that the first lines of a script install, and how many lines these are. There
    are none where one of them does more than to install packages.

    Args:
        located: the path of a requirements file as the YAML says it.
    """
    files: list[str] = []
    requirements: list[str] = []
    count = 0
    for line in lines:
        match = _INSTALL.fullmatch(line.strip())
        if match is None or not _taken(match[1], files, requirements):
            break
        count += 1
    if len(files) + bool(requirements) != 1:
        return (), 0
    if files:
        return (put("env.requirements", located(files[0])),), count
    return (put("env.dependencies", [*requirements]),), count


def _taken(words: str, files: list[str], requirements: list[str]) -> bool:
    """Whether all words of an install are known; they are added to the lists then."""
    try:
        left = shlex.split(words)
    except ValueError:
        return False
    new_files: list[str] = []
    new: list[str] = []
    while left:
        word = left.pop(0)
        if word in ("-r", "--requirement") and left:
            new_files.append(left.pop(0))
        elif _REQUIREMENT.fullmatch(word):
            new.append(word)
        elif word not in _QUIET:
            return False
    files += new_files
    requirements += new
    return bool(new_files or new)
