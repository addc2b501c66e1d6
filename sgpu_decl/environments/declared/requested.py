"""What a declared environment asks for: requirement lines and where they were written, and every
file that they include. Nothing is resolved here."""

import os
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from sgpu_decl.config.env import EnvironmentBlock
from sgpu_decl.diagnostics.diagnostic import Diagnostic
from sgpu_decl.diagnostics.place import Place
from sgpu_decl.environments.known.packages import normalise
from sgpu_decl.environments.known.requirements import logical_lines, read_text

__all__ = ["Asked", "Wanted", "read_asked"]

_DEEPEST = 20  # files that include each other
_FILE = re.compile(r"(-r|--requirement|-c|--constraint)(?:\s*=?\s*)(.+)")
_INDEX = re.compile(r"(?:-i|--index-url|--extra-index-url|-f|--find-links)(?:\s*=?\s*)(.+)")
_EDITABLE = re.compile(r"(?:-e|--editable)\b")
_HASH = re.compile(r"--hash[=\s]+([a-z0-9]+:[0-9a-f]+)")
_NAME = re.compile(r"([A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?)\s*(?:$|[\[<>=!~;@\s(])")
_PASSWORD = re.compile(r"://[^/\s@:]*:[^/\s@]+@|https?://(?!git@)[^/\s@:]+@")
_VARIABLE = re.compile(r"\$\{[A-Z0-9_]+\}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """One requirement: its name where it can be told from the line, its hashes, its place."""

    name: str | None
    hashes: tuple[str, ...]
    place: Place | None


@dataclass(slots=True, kw_only=True)
class Asked:
    """`lines` are `dependencies`, `root` is the requirements file; `files` holds what was read, by
    absolute path; `indexes` are URLs of indexes that a variable is part of."""

    lines: tuple[str, ...] = ()
    root: Path | None = None
    wanted: list[Wanted] = field(default_factory=list)
    files: dict[str, str] = field(default_factory=dict)
    indexes: list[str] = field(default_factory=list)
    found: list[Diagnostic] = field(default_factory=list)

    @property
    def hashed(self) -> bool:
        """Whether it is a lock itself. `found` says it where only some have a hash."""
        return bool(self.wanted) and all(it.hashes for it in self.wanted)

    def places(self, names: Collection[str]) -> list[Place]:
        """Where requirements of these packages were written."""
        return [it.place for it in self.wanted if it.name in names and it.place is not None]


def read_asked(
    block: EnvironmentBlock, *, folder: Path, places: Mapping[str, Place], at: str = "env"
) -> Asked:
    """Read `dependencies`, and `requirements` or a `lock` in its form, with what they include.

    Args:
        folder: what relative paths start from.
        places: where fields were written; those of the block are below `at`.
    """
    asked = Asked(lines=block.dependencies or ())
    for index, line in enumerate(asked.lines):
        place = places.get(f"{at}.dependencies.{index}")
        if "\n" in line.strip():
            asked.found.append(_bad("a dependency goes over several lines", place, "one each"))
            continue
        _read_line(asked, line.strip(), place, folder, folder, ())
    listed = block.requirements or block.lock
    if listed is not None:
        asked.root = folder / os.path.expanduser(listed)
        place = places.get(f"{at}.requirements") or places.get(f"{at}.lock")
        _read_file(asked, asked.root, listed, place, folder, ())
    hashed = [it for it in asked.wanted if it.hashes]
    if hashed and not asked.hashed:
        asked.found += [
            Diagnostic(
                code="lock_without_hashes",
                summary=f"`{it.name or 'this requirement'}` has no hash, and others have one",
                place=it.place,
                hint="give all of them hashes (`uv pip compile --generate-hashes`), or none",
            )
            for it in asked.wanted
            if not it.hashes
        ]
    return asked


def _read_file(
    asked: Asked,
    path: Path,
    shown: str,
    place: Place | None,
    folder: Path,
    above: tuple[str, ...],
) -> None:
    whole = os.path.realpath(path)
    if whole in above or len(above) >= _DEEPEST:
        asked.found.append(_bad(f"`{shown}` includes itself", place, "remove one of the includes"))
        return
    if path.is_dir() or not path.exists():
        asked.found.append(
            Diagnostic(
                code="requirements_missing",
                summary=f"there is no file `{shown}`",
                place=place,
                hint=f"relative paths start from `{path.parent}`",
            )
        )
        return
    text = read_text(path, shown, place)
    if isinstance(text, Diagnostic):
        asked.found.append(text)
        return
    asked.files[os.fspath(path)] = text
    for number, line in logical_lines(text):
        _read_line(asked, line, Place(shown, number, 1), path.parent, folder, (*above, whole))


def _read_line(
    asked: Asked,
    line: str,
    place: Place | None,
    beside: Path,
    folder: Path,
    above: tuple[str, ...],
) -> None:
    if _PASSWORD.search(_VARIABLE.sub("", line)):
        asked.found.append(
            Diagnostic(
                code="literal_secret",
                summary="a URL holds a password or token, which would be stored",
                place=place,
                hint="write `${NAME}` in its place and set that variable, or use "
                "`UV_INDEX_<NAME>_PASSWORD`, a keyring or ~/.netrc",
            )
        )
    elif _EDITABLE.match(line):
        asked.found.append(
            Diagnostic(
                code="requirement_local",
                summary="an editable install is not fixed: its files change under the run",
                place=place,
                hint="build a wheel of it and name that, or take it into `code.root`: code travels "
                "with each run",
            )
        )
    elif included := _FILE.fullmatch(line):
        _include(asked, included[1], included[2].strip(" '\""), place, beside, folder, above)
    elif index := _INDEX.fullmatch(line):
        if _VARIABLE.search(index[1]):
            asked.indexes.append(index[1].strip())
    elif not line.startswith("-"):
        named = _NAME.match(line)
        hashes = tuple(_HASH.findall(line))
        name = normalise(named[1]) if named else None
        asked.wanted.append(Wanted(name=name, hashes=hashes, place=place))


def _include(
    asked: Asked,
    option: str,
    name: str,
    place: Place | None,
    beside: Path,
    folder: Path,
    above: tuple[str, ...],
) -> None:
    if "://" in name:
        summary = f"`{name}` is not on this machine, so that nobody could tell when it changes"
        asked.found.append(_bad(summary, place, "copy the file here and include it"))
        return
    path = beside / name
    shown = os.path.relpath(path, folder)
    if option in ("-r", "--requirement"):
        _read_file(asked, path, shown, place, folder, above)
        return
    apart = Asked()  # constraints ask for nothing
    _read_file(apart, path, shown, place, folder, above)
    asked.files |= apart.files
    asked.found += apart.found


def _bad(summary: str, place: Place | None, hint: str) -> Diagnostic:
    return Diagnostic(code="bad_requirement", summary=summary, place=place, hint=hint)
