"""Reads requirements files line by line, as pip does: continued lines, comments, included files.

https://pip.pypa.io/en/stable/reference/requirements-file-format/
"""

import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from sgpu_decl.diagnostics.amounts import size
from sgpu_decl.diagnostics.diagnostic import Diagnostic
from sgpu_decl.diagnostics.place import Place
from sgpu_decl.environments.package_lists.other_tool_files import other_tool_file
from sgpu_decl.environments.package_lists.packages import normalise
from sgpu_decl.regular_files import is_below, read_regular

_LARGEST = 64 << 20  # bytes: a lock of thousands of packages has a few MB
_DEEPEST = 20  # files that include each other

_COMMENT = re.compile(r"(^|\s+)#.*$")
_OPTIONS = re.compile(r"\s+(?=--[a-z])")
_INCLUDE = re.compile(r"(-r|--requirements?\b|-c|--constraints?\b)\s*=?\s*(.+)")
_NAME = re.compile(r"([A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?)\s*(?:$|[\[<>=!~;@\s(])")
_LOGIN = re.compile(r"//[^/@]*@")
_HASH = re.compile(r"--hash[=\s]+([a-z0-9]+:[0-9a-f]+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class RequirementLine:
    """A requirement, `torch>=2.6 --hash=...`, or an option, `--index-url URL`. `folder` is the base
    of its paths; a `constraint` limits versions and installs nothing. `outside` names the line of a
    file outside of the project, whose text is never shown: `place` is where that file is named."""

    text: str
    place: Place | None
    folder: Path = Path()
    constraint: bool = False
    outside: str | None = None

    @property
    def option(self) -> str | None:
        """The first word of an option; `None` for a requirement."""
        return re.split(r"[\s=]", self.text, maxsplit=1)[0] if self.text.startswith("-") else None

    @property
    def requirement(self) -> str:
        """The line without `--hash` and other trailing options."""
        return _OPTIONS.split(self.text, maxsplit=1)[0]

    @property
    def name(self) -> str | None:
        """The normalised name of the package, if the line has one."""
        match = _NAME.match(self.text)
        return normalise(match[1]) if match else None

    @property
    def hashes(self) -> tuple[str, ...]:
        return tuple(_HASH.findall(self.text))


class RequirementsReader:
    """Reads lines and follows includes. `texts` has the files that were read, by absolute path.

    Args:
        constraints: whether constraints files are followed too; without them `-c` is an option.
        fetch: is called with each file before it is opened.
        project: the folder of the project; files elsewhere are outside.
    """

    def __init__(
        self,
        *,
        constraints: bool,
        fetch: Callable[[Path], None] = lambda _: None,
        project: Path | None = None,
    ) -> None:
        self.texts: dict[str, str] = {}
        self._project = os.path.realpath(project) if project is not None else None
        self._fetch = fetch
        self._constraints = constraints

    def file(
        self,
        path: Path,
        shown: str,
        place: Place | None = None,
        *,
        constraint: bool = False,
        above: tuple[str, ...] = (),
    ) -> Iterator[RequirementLine | Diagnostic]:
        """Yield the lines of a file and of included files, and the errors of includes.

        Args:
            shown: the user's name for it, for places.
            place: where the user named it.
            above: the files that include it.
        """
        at, whole = place or Place(shown, 1, 1), os.path.realpath(path)
        if whole in above or len(above) >= _DEEPEST:
            yield _bad(f"`{shown}` includes itself", at, "remove one of the includes")
            return
        self._fetch(path)
        if path.is_dir() or not path.exists():
            yield Diagnostic(
                code="requirements_missing",
                summary=f"there is no file `{shown}`",
                place=at,
                hint=f"relative paths start from `{path.parent}`",
            )
            return
        text = read_text(path, shown, place)
        if isinstance(text, Diagnostic):
            yield text
            return
        if (finding := other_tool_file(shown, text, at)) is not None:
            yield finding
            return
        self.texts[os.fspath(path)] = text
        is_outside = self._project is not None and not is_below(whole, self._project)
        for number, logical in _logical_lines(text):
            line = RequirementLine(
                text=logical,
                place=at if is_outside else Place(shown, number, 1),
                folder=path.parent,
                constraint=constraint,
                outside=f"line {number} of `{shown}`" if is_outside else None,
            )
            for item in self.line(line, os.path.dirname(shown), (*above, whole)):
                if isinstance(item, Diagnostic) and is_outside:
                    yield unshown(line, item.code)
                else:
                    yield item

    def line(
        self, line: RequirementLine, shown_folder: str = "", above: tuple[str, ...] = ()
    ) -> Iterator[RequirementLine | Diagnostic]:
        """Yield the line, or those of the file that it includes."""
        if "\n" in line.text:
            yield _bad(
                "a dependency has several lines", line.place, "write one dependency in each entry"
            )
            return
        include = _INCLUDE.fullmatch(line.text)
        binds = include is not None and include[1].lstrip("-").startswith("c")
        if include is None or (binds and not self._constraints):
            yield line
            return
        name = include[2].strip(" '\"")
        if "://" in name:
            url = _LOGIN.sub("//", name)
            summary = f"`{url}` is not on this machine, so its changes would not be noticed"
            yield _bad(summary, line.place, "download the file and include that")
            return
        yield from self.file(
            line.folder / name,
            os.path.normpath(os.path.join(shown_folder, name)),
            line.place,
            constraint=line.constraint or binds,
            above=above,
        )


def unshown(line: RequirementLine, code: str) -> Diagnostic:
    """The error about a line of a file outside of the project."""
    return Diagnostic(
        code=code,
        summary=f"{line.outside}, which lies outside of the project, cannot be used as a "
        "requirement; its text is not shown",
        place=line.place,
        hint="look at it there, and keep lists of requirements in the project",
    )


def read_text(path: Path, shown: str, place: Place | None = None) -> str | Diagnostic:
    """The text of a lock file, or the error. `place` is where the user named it."""
    at = place or Place(shown, 1, 1)
    try:
        if path.stat().st_size > _LARGEST:
            return _unreadable(shown, f"it is larger than {size(_LARGEST)}", at)
        return read_regular(path).decode("utf-8-sig")
    except UnicodeDecodeError:
        return _unreadable(shown, "it is not UTF-8 text", at)
    except OSError as error:
        return _unreadable(shown, (error.strerror or str(error)).lower(), at)


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Joined continuation lines without comments, each with the number of its first line. As for
    uv, a comment ends with its line; for pip it goes on after a backslash."""
    start, logical = 0, ""
    for number, raw in enumerate(text.splitlines(), 1):
        goes_on = raw.endswith("\\") and not _COMMENT.search(raw)
        start = start or number
        logical += (raw[:-1] + " ") if goes_on else _COMMENT.sub("", raw)
        if goes_on:
            continue
        if line := logical.strip():
            yield start, line
        start, logical = 0, ""
    if line := logical.strip():
        yield start, line


def _bad(summary: str, place: Place | None, hint: str) -> Diagnostic:
    return Diagnostic(code="bad_requirement", summary=summary, place=place, hint=hint)


def _unreadable(shown: str, cause: str, place: Place) -> Diagnostic:
    return Diagnostic(
        code="lock_unreadable",
        summary=f"`{shown}` cannot be read: {cause}",
        place=place,
        hint="check the path; lock files are text",
    )
