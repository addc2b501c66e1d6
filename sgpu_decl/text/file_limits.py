"""How large a file may be, and which kind of file it is."""

import re

from sgpu_decl.diagnostics.diagnostic import Diagnostic
from sgpu_decl.diagnostics.place import Place
from sgpu_decl.frozen_dataclass import dataclass
from sgpu_decl.text.yaml_nodes import Mapping


@dataclass(frozen=True, slots=True, kw_only=True)
class FileLimits:
    """`size` in bytes; `nodes` with aliases written out; `depth` in nested collections."""

    size: int
    nodes: int
    depth: int = 100


RUN_FILE = FileLimits(size=1 << 20, nodes=100_000)
PROJECT_FILE = FileLimits(size=10 << 20, nodes=2_000_000)

_PROJECT_NAMES = ("sgpu.yml", "sgpu.yaml")
_PROJECT_KEYS = ("project", "runs")
_PROJECT_KEY = re.compile(r"""^[ \t{]*["']?(?:project|runs)["']?[ \t]*:""", re.MULTILINE)


def is_project(root: Mapping, file: str) -> bool:
    """Whether a file describes a project rather than one run."""
    return any(key in root.entries for key in _PROJECT_KEYS) or _named_project(file)


def limits_for(text: str | bytes, file: str) -> FileLimits:
    """The limits that a file is read under. A guess in favour of the project: whoever reads a run
    file checks the smaller limits again once it is known to be one."""
    if _named_project(file):
        return PROJECT_FILE
    shown = text.decode("utf-8", "replace") if isinstance(text, bytes) else text
    return PROJECT_FILE if _PROJECT_KEY.search(shown) else RUN_FILE


def too_large(file: str, limits: FileLimits) -> Diagnostic:
    kind = "project" if limits == PROJECT_FILE else "run"
    return Diagnostic(
        code="file_too_large",
        summary=f"the file has more than {limits.size:,} bytes, the limit of a {kind} file",
        place=Place(file, 1, 1),
        hint="is this the right file? a run or project file is text written by hand",
    )


def too_many(file: str, limits: FileLimits, place: Place | None = None) -> Diagnostic:
    return Diagnostic(
        code="too_many_values",
        summary=f"the file holds more than {limits.nodes:,} values once aliases are written out",
        place=place or Place(file, 1, 1),
        hint="write fewer aliases (`*name`), or split the file",
    )


def too_deep(limits: FileLimits, place: Place) -> Diagnostic:
    return Diagnostic(
        code="too_deep",
        summary=f"the values are nested more than {limits.depth} deep",
        place=place,
        hint="is a bracket missing?",
    )


def _named_project(file: str) -> bool:
    return file.replace("\\", "/").rpartition("/")[2] in _PROJECT_NAMES
