"""Refuses requirements that are source folders or archives on this machine: uv would execute their
code to learn their dependencies. A wheel is only read."""

import os
import re
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from urllib.parse import unquote, urlsplit

from sgpu_decl.diagnostics.diagnostic import Diagnostic
from sgpu_decl.diagnostics.place import Place
from sgpu_decl.environments.package_lists.toml import tables, texts

_SOURCES = (".tar.gz", ".tgz", ".zip", ".tar.bz2", ".tar.xz", ".tar.zst", ".tar")
_REQUIREMENTS = (
    "override-dependencies",
    "constraint-dependencies",
    "build-constraint-dependencies",
)
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


def local_index(target: str, folder: Path, place: Place | None) -> Diagnostic | None:
    """The error for an index that is a folder of this machine and holds sources."""
    path = _path_of(target, alone=True, anything=True)
    whole = folder / os.path.expanduser(path or "")
    if path is None or not os.path.isdir(whole):
        return None
    archive = next(_source_archives(whole), None)
    if archive is None:
        return None
    return Diagnostic(
        code="requirement_local",
        summary=f"`{path}` holds a source, `{archive}`: resolving it would execute what is in it",
        place=place,
        hint="build a wheel of it, and keep only wheels in the folder",
    )


def local_sources_of_settings(path: Path, text: str, place: Place | None) -> Iterator[Diagnostic]:
    """The errors for local sources in a project's settings for uv."""
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        return  # uv says so
    settings = data if path.name == "uv.toml" else data.get("tool", {}).get("uv", {})
    inner = settings.get("pip", {})
    for table in (settings, inner if isinstance(inner, Mapping) else {}):
        for name in _REQUIREMENTS:
            yield from _findings(
                local_requirement(requirement, place) for requirement in texts(table.get(name))
            )
        indexes = [*texts(table.get("find-links")), *texts(table.get("extra-index-url"))]
        indexes += [str(index.get("url")) for index in tables(table.get("index"))]
        yield from _findings(local_index(index, path.parent, place) for index in indexes)


def _findings(each: Iterator[Diagnostic | None]) -> Iterator[Diagnostic]:
    yield from (finding for finding in each if finding is not None)


def _source_archives(folder: Path) -> Iterator[str]:
    for path, folders, names in os.walk(folder):
        folders.sort()
        for name in sorted(names):
            if name.endswith(_SOURCES):
                yield os.path.relpath(os.path.join(path, name), folder)


def _path_of(target: str, *, alone: bool, anything: bool = False) -> str | None:
    """The local path of a requirement, or of the target after its `@`."""
    scheme = _URL.match(target)
    if scheme is not None:
        if scheme.group().lower() not in ("file:", "git+file:"):
            return None
        parts = urlsplit(target.removeprefix("git+"))
        return unquote(parts.path)
    if not alone or anything:
        return target
    looks = target.startswith((".", "~")) or "/" in target.partition("[")[0]
    return target if looks or target.endswith((*_SOURCES, ".whl")) else None
