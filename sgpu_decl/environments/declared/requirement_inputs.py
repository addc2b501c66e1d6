"""Reads the requirement lines of a declared environment, with their places and the files that they
include. Nothing is resolved here, and uv is given these lines alone: it reads no such file itself.
"""

import os
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from sgpu_decl.diagnostics.diagnostic import Diagnostic
from sgpu_decl.diagnostics.place import Place
from sgpu_decl.environments.package_lists.other_tool_files import other_tool_file
from sgpu_decl.environments.package_lists.requirements import (
    RequirementLine,
    RequirementsReader,
    unshown,
)

if TYPE_CHECKING:
    from sgpu_decl.config.env import EnvironmentBlock

_INDEX = re.compile(r"(-i|--index-url|--extra-index-url|-f|--find-links)(?:\s*=?\s*)(.+)")
_PASSWORD = re.compile(r"://[^/\s@:]*:[^/\s@]+@|https?://(?!git@)[^/\s@:]+@")
_VARIABLE = re.compile(r"\$\{[A-Z0-9_]+\}")
_SOURCES = (".tar.gz", ".tgz", ".zip", ".tar.bz2", ".tar.xz", ".tar.zst", ".tar")
_END = re.compile(r"\s+(?:;|#|--hash)|(?<=\S);(?=\s)")
_NAMED = re.compile(r"[A-Za-z0-9][\w.-]*\s*(?:\[[^\]]*\])?\s*@\s*(.+)")
_URL = re.compile(r"[a-z][a-z0-9+.-]+:", re.IGNORECASE)
_HINT = "build a wheel of it and name that, or put it into `code.root`"
_OF_UV = ("pyproject.toml", "uv.toml")


@dataclass(slots=True, kw_only=True)
class RequirementInputs:
    """`lines` are `dependencies`, `root` is the requirements file; `files` maps absolute paths to
    texts; `indexes` are URLs of indexes that contain a variable. `given` and `bounds` are the lines
    and constraints for uv, `builder` is a line that asks for a build, and `outside` are lines of
    files outside of the project."""

    lines: tuple[str, ...] = ()
    root: Path | None = None
    requirements: list[RequirementLine] = field(default_factory=list)
    files: dict[str, str] = field(default_factory=dict)
    indexes: list[str] = field(default_factory=list)
    given: list[str] = field(default_factory=list)
    bounds: list[str] = field(default_factory=list)
    builder: str | None = None
    outside: list[RequirementLine] = field(default_factory=list)
    findings: list[Diagnostic] = field(default_factory=list)

    @property
    def hashed(self) -> bool:
        """Whether every requirement has a hash, as in a lock."""
        return bool(self.requirements) and all(item.hashes for item in self.requirements)

    def places(self, names: Collection[str]) -> list[Place]:
        """The places of the requirements of these packages."""
        return [
            item.place
            for item in self.requirements
            if item.name in names and item.place is not None
        ]


def read_requirement_inputs(
    block: "EnvironmentBlock",
    *,
    folder: Path,
    places: Mapping[str, Place],
    at: str = "env",
    project: Path | None = None,
) -> RequirementInputs:
    """Read `dependencies`, and the file of `requirements` or `lock`, with included files.

    Args:
        folder: the base of relative paths.
        places: the places of fields; those of the block are below `at`.
        project: the folder of the project; the text of files elsewhere is not shown.
    """
    inputs = RequirementInputs(lines=block.dependencies or ())
    reader = RequirementsReader(constraints=True, project=project)
    for index, text in enumerate(inputs.lines):
        place = places.get(f"{at}.dependencies.{index}")
        _take_all(
            inputs, reader.line(RequirementLine(text=text.strip(), place=place, folder=folder))
        )
    file = block.requirements or block.lock
    if file is not None:
        inputs.root = folder / os.path.expanduser(file)
        place = places.get(f"{at}.requirements") or places.get(f"{at}.lock")
        _take_all(inputs, reader.file(inputs.root, file, place))
    inputs.files = reader.texts
    if any(item.hashes for item in inputs.requirements) and not inputs.hashed:
        inputs.findings += [
            unshown(item, "lock_without_hashes")
            if item.outside
            else Diagnostic(
                code="lock_without_hashes",
                summary=f"`{item.name or 'this requirement'}` has no hash, and others have one",
                place=item.place,
                hint="give all of them hashes (`uv pip compile --generate-hashes`), or none",
            )
            for item in inputs.requirements
            if not item.hashes
        ]
    return inputs


def _take_all(inputs: RequirementInputs, lines: Iterable[RequirementLine | Diagnostic]) -> None:
    for line in lines:
        if isinstance(line, Diagnostic):
            inputs.findings.append(line)
            continue
        before = len(inputs.findings)
        if line.outside is not None and line.option is None and not _is_requirement(line):
            inputs.findings.append(unshown(line, "bad_requirement"))
            continue
        _take(inputs, line)
        if line.outside is not None:
            inputs.outside.append(line)
            inputs.findings[before:] = [
                unshown(line, item.code) for item in inputs.findings[before:]
            ]


def _is_requirement(line: RequirementLine) -> bool:
    from packaging.requirements import InvalidRequirement, Requirement

    if _local_wheel(line.text) is not None or line.text.startswith(("https://", "http://")):
        return True
    try:
        Requirement(line.requirement)
    except InvalidRequirement:
        return False
    return True


def _take(inputs: RequirementInputs, line: RequirementLine) -> None:
    """Add a line to the inputs, or the finding about it."""
    index = _INDEX.fullmatch(line.text)
    if _PASSWORD.search(_VARIABLE.sub("", line.text)):
        inputs.findings.append(
            Diagnostic(
                code="literal_secret",
                summary="a URL holds a password or token, which would be stored",
                place=line.place,
                hint="write `${NAME}` in its place and set that variable, or use "
                "`UV_INDEX_<NAME>_PASSWORD`, a keyring or ~/.netrc",
            )
        )
    elif line.text.startswith(("-e", "--editable")):
        inputs.findings.append(
            Diagnostic(
                code="requirement_local",
                summary="an editable install is not fixed: its files may change during the run",
                place=line.place,
                hint="build a wheel of it and name that, or take it into `code.root`: code travels "
                "with each run",
            )
        )
    elif line.option is None and (
        finding := other_tool_file(line.text, None, line.place)
        or _local_requirement(line.text, line.place)
    ):
        inputs.findings.append(finding)
    elif line.constraint:
        inputs.bounds += [line.text] if line.option is None else []
    elif index is not None:
        if _VARIABLE.search(index[2]):
            inputs.indexes.append(index[2].strip())
        inputs.given.append(f"{index[1]} {_from_here(index[2].strip(), line.folder)}")
    else:
        inputs.given.append(line.text)
        if line.option is None:
            inputs.requirements.append(line)
        elif line.option == "--no-binary":
            inputs.builder = f"`{line.text}`"


def _from_here(target: str, folder: Path) -> str:
    """An index as uv finds it from its working folder: that of a file may be relative to it."""
    path = folder / os.path.expanduser(target.strip("'\""))
    return target if "://" in target or not path.exists() else os.fspath(path)


def _local_requirement(line: str, place: Place | None) -> Diagnostic | None:
    """The error for a requirement that is a path or file URL, and not a wheel: uv would execute the
    code of a source folder or archive to learn its dependencies, and nothing fixes what a folder
    holds. A wheel is only read."""
    path = _local_path(line)
    if path is None or _is_wheel(path):
        return None
    return Diagnostic(
        code="requirement_local",
        summary=f"`{path}` is a source on this machine: resolving it would execute what is in it",
        place=place,
        hint=_HINT,
    )


def _local_wheel(line: str) -> str | None:
    """The path of a requirement that is a wheel on this machine."""
    path = _local_path(line)
    return path.partition("#")[0] if path is not None and _is_wheel(path) else None


def _local_path(line: str) -> str | None:
    target = _END.split(line, maxsplit=1)[0].strip()
    match = _NAMED.fullmatch(target)
    return _path_of(match[1] if match else target, alone=match is None)


def _is_wheel(path: str) -> bool:
    return path.partition("#")[0].endswith(".whl")


def _path_of(target: str, *, alone: bool) -> str | None:
    """The local path of a requirement, or of the target after its `@`."""
    scheme = _URL.match(target)
    if scheme is not None:
        if scheme.group().lower() not in ("file:", "git+file:"):
            return None
        parts = urlsplit(target.removeprefix("git+"))
        return unquote(parts.path)
    if not alone:
        return target
    looks = target.startswith((".", "~")) or "/" in target.partition("[")[0]
    return target if looks or target.endswith((*_SOURCES, ".whl")) else None


def fetch_files(block: "EnvironmentBlock", folder: Path, fetch: Callable[[Path], None]) -> None:
    """Call `fetch` with each file that a declared environment is read from, before that file is
    opened: which files a requirements file includes is known only once it is there.

    Args:
        folder: the base of relative paths.
    """
    reader = RequirementsReader(constraints=True, fetch=fetch)
    lines = [
        RequirementLine(text=text.strip(), place=None, folder=folder)
        for text in block.dependencies or ()
    ]
    found = [item for line in lines for item in reader.line(line)]
    named = block.requirements or block.lock
    if named is not None:
        file = folder / os.path.expanduser(named)
        if file.suffix in (".toml", ".lock"):
            for path in (file, *(file.with_name(name) for name in _OF_UV)):
                fetch(path)
        else:
            found += reader.file(file, named)
    for item in found:
        wheel = _local_wheel(item.text) if isinstance(item, RequirementLine) else None
        if wheel is not None:  # uv takes its path from its working folder, whatever file names it
            fetch(folder / os.path.expanduser(wheel))
