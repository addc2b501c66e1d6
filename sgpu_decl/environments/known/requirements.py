"""Requirements files in which everything is pinned, as pip reads them: continued lines, comments,
`-r` includes, markers, hashes.

https://pip.pypa.io/en/stable/reference/requirements-file-format/
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from sgpu_decl.diagnostics.diagnostic import Diagnostic, in_order
from sgpu_decl.diagnostics.place import Place
from sgpu_decl.environments.known.locked import Locked, Pin, invalid, settle
from sgpu_decl.environments.known.markers import applies
from sgpu_decl.environments.known.packages import normalise
from sgpu_decl.model.environment import Package

if TYPE_CHECKING:
    from packaging.requirements import Requirement

__all__ = [
    "LARGEST",
    "Line",
    "logical_lines",
    "read_requirements",
    "read_text",
    "requirement_lines",
]

LARGEST = 64 << 20  # bytes: a lock of thousands of packages has a few MB
_DEEPEST = 20  # files that include each other

_COMMENT = re.compile(r"(^|\s+)#.*$")
_OPTIONS = re.compile(r"\s+(?=--[a-z])")
_INCLUDE = re.compile(r"(?:-r\s*|--requirement(?:\s+|=))(.+)")
_HASH = re.compile(r"--hash(?:=|\s+)(?:sha256|sha384|sha512):[0-9a-f]{64,}")
# What changes how or from where pip installs, and not what.
_IGNORED = re.compile(
    r"-c\b|--constraint\b|-i\b|--index-url\b|--extra-index-url\b|--no-index\b|-f\b|--find-links\b"
    r"|--no-binary\b|--only-binary\b|--prefer-binary\b|--require-hashes\b|--pre\b"
    r"|--trusted-host\b|--use-feature\b"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One requirement, `torch>=2.6`, where it was written; `hashed` says that it has hashes."""

    text: str
    place: Place | None
    hashed: bool = False


def read_requirements(
    path: Path, shown: str, values: Mapping[str, str]
) -> tuple[Locked | None, tuple[Diagnostic, ...]]:
    """Read a file in which everything is pinned, and what it includes.

    Args:
        shown: how the user named it, for places.
        values: what markers are evaluated with.

    Returns:
        The packages, or `None` where a line is wrong, and what is wrong: every line that pins
        nothing has a finding of its own.
    """
    lines, wrong = requirement_lines(path, shown)
    pins: list[Pin] = []
    found = list(wrong)
    for line in lines:
        pin = _pin(line, line.place or Place(shown, 1, 1), values)
        if isinstance(pin, Diagnostic):
            found.append(pin)
        elif pin is not None:
            pins.append(pin)
    locked, more = settle("requirements", pins)
    found += more
    return (None if found else locked), in_order(found)


def requirement_lines(path: Path, shown: str) -> tuple[tuple[Line, ...], tuple[Diagnostic, ...]]:
    """The requirements of a file and of those that it includes, pinned or not, and what is wrong
    with other lines."""
    reader = _Reader()
    reader.read(path, shown, None, ())
    return tuple(reader.lines), tuple(reader.found)


def read_text(path: Path, shown: str, place: Place | None = None) -> str | Diagnostic:
    """The text of a lock file, or why there is none. `place` is where it was named."""
    at = place or Place(shown, 1, 1)
    try:
        if path.stat().st_size > LARGEST:
            return _unreadable(shown, "it is larger than 64 MiB", at)
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError:
        return _unreadable(shown, "it is not UTF-8 text", at)
    except OSError as error:
        return _unreadable(shown, (error.strerror or str(error)).lower(), at)


class _Reader:
    def __init__(self) -> None:
        self.lines: list[Line] = []
        self.found: list[Diagnostic] = []

    def read(self, path: Path, shown: str, place: Place | None, above: tuple[Path, ...]) -> None:
        whole = path.resolve()
        if whole in above or len(above) >= _DEEPEST:
            self.found.append(invalid(f"`{shown}` includes itself", place or Place(shown, 1, 1)))
            return
        text = read_text(path, shown, place)
        if isinstance(text, Diagnostic):
            self.found.append(text)
            return
        for number, line in logical_lines(text):
            at = Place(shown, number, 1)
            included = _INCLUDE.fullmatch(line)
            if included is None:
                self._line(line, at)
                continue
            name = included[1].strip().strip("'\"")
            if "://" in name:
                summary = f"`{name}` is not on this machine"
                self.found.append(invalid(summary, at, "include a file, or copy its lines"))
                continue
            beside = Path(shown).parent / name
            self.read(path.parent / name, str(beside), at, (*above, whole))

    def _line(self, line: str, at: Place) -> None:
        if _IGNORED.match(line):
            return
        if line.startswith("-"):
            word = line.split(maxsplit=1)[0]
            what = "an editable install" if word in ("-e", "--editable") else f"`{word}`"
            hint = "name the package with its version"
            self.found.append(invalid(f"{what} pins nothing", at, hint))
            return
        text, *options = _OPTIONS.split(line)
        hashed = any(_HASH.match(it) for it in options)
        self.lines.append(Line(text=text, place=at, hashed=hashed))


def _pin(line: Line, at: Place, values: Mapping[str, str]) -> Pin | Diagnostic | None:
    """What a line pins, `None` where it does not apply, or what is wrong with it."""
    from packaging.requirements import InvalidRequirement, Requirement

    try:
        requirement = Requirement(line.text)
        marker = requirement.marker
        if marker is not None and not applies(str(marker), values):
            return None
    except (InvalidRequirement, ValueError):
        return invalid(f"`{line.text}` is no requirement", at, "write it as `name==1.2.3`")
    version = _pinned(requirement)
    if version is None:
        return Diagnostic(
            code="lock_unpinned",
            summary=f"`{requirement.name}` is not pinned to one version",
            place=at,
            hint=f"write `{requirement.name}==…`; `uv pip compile` pins a whole file",
        )
    package = Package(normalise(requirement.name), version)
    return Pin(package=package, hashed=line.hashed, place=at)


def _pinned(requirement: "Requirement") -> str | None:
    """The one version that a requirement allows; that of a wheel's name for a direct reference."""
    if requirement.url is not None:
        from packaging.utils import InvalidWheelFilename, parse_wheel_filename

        name = requirement.url.partition("#")[0].rpartition("/")[2].replace("%2B", "+")
        try:
            return str(parse_wheel_filename(name)[1])
        except (InvalidWheelFilename, ValueError):
            return None
    if len(requirement.specifier) != 1:
        return None
    (one,) = requirement.specifier
    exact = one.operator in ("==", "===") and not one.version.endswith(".*")
    return one.version if exact else None


def logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Lines put together where they go on, without comments, with the number of their first."""
    start, held = 0, ""
    for number, raw in enumerate(text.splitlines(), 1):
        comment = raw.lstrip().startswith("#")
        goes_on = raw.endswith("\\") and not comment
        start = start or number
        held += (raw[:-1] + " ") if goes_on else ("" if comment else raw)
        if goes_on:
            continue
        line = _COMMENT.sub("", held).strip()
        if line:
            yield start, line
        start, held = 0, ""
    if line := _COMMENT.sub("", held).strip():
        yield start, line


def _unreadable(shown: str, cause: str, place: Place) -> Diagnostic:
    return Diagnostic(
        code="lock_unreadable",
        summary=f"`{shown}` cannot be read: {cause}",
        place=place,
        hint="check the path; lock files are text",
    )
