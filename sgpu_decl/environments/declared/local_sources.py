"""Refuses requirements that are source folders or archives on this machine: uv would execute their
code to learn their dependencies, and nothing fixes what a folder holds. A wheel is only read."""

import re
from urllib.parse import unquote, urlsplit

from sgpu_decl.diagnostics.diagnostic import Diagnostic
from sgpu_decl.diagnostics.place import Place

_SOURCES = (".tar.gz", ".tgz", ".zip", ".tar.bz2", ".tar.xz", ".tar.zst", ".tar")
_END = re.compile(r"\s+(?:;|#|--hash)|(?<=\S);(?=\s)")
_NAMED = re.compile(r"[A-Za-z0-9][\w.-]*\s*(?:\[[^\]]*\])?\s*@\s*(.+)")
_URL = re.compile(r"[a-z][a-z0-9+.-]+:", re.IGNORECASE)
_HINT = "build a wheel of it and name that, or put it into `code.root`"


def local_requirement(line: str, place: Place | None) -> Diagnostic | None:
    """The error for a requirement that is a path or file URL, and not a wheel."""
    path = _local_path(line)
    if path is None or _is_wheel(path):
        return None
    return Diagnostic(
        code="requirement_local",
        summary=f"`{path}` is a source on this machine: resolving it would execute what is in it",
        place=place,
        hint=_HINT,
    )


def local_wheel(line: str) -> str | None:
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
