"""The user's settings for uv that a resolution depends on: indexes, and rules for versions. They
are read as uv reads them; credentials are left out.

https://docs.astral.sh/uv/concepts/configuration-files/
"""

import os
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path

from sgpu_decl.environments.declared.uv import without_credentials
from sgpu_decl.regular_files import read_regular

_VARIABLES = (
    "UV_INDEX", "UV_DEFAULT_INDEX", "UV_INDEX_URL", "UV_EXTRA_INDEX_URL", "UV_FIND_LINKS",
    "UV_INDEX_STRATEGY", "UV_RESOLUTION", "UV_PRERELEASE", "UV_FORK_STRATEGY", "UV_EXCLUDE_NEWER",
    "UV_TORCH_BACKEND", "UV_NO_SOURCES", "UV_NO_BUILD", "UV_NO_BUILD_PACKAGE", "UV_NO_BINARY",
    "UV_NO_BINARY_PACKAGE", "UV_NO_CONFIG",
)  # fmt: skip
_FILES = ("UV_CONSTRAINT", "UV_OVERRIDE", "UV_EXCLUDE", "UV_BUILD_CONSTRAINT", "UV_CONFIG_FILE")


def uv_settings(environ: Mapping[str, str], folder: Path) -> list[list[str]]:
    """Return names and values: variables, and files by path and text.

    Args:
        folder: the working folder of uv; its project's settings count.
    """
    variables = [
        [name, without_credentials(environ[name])] for name in _VARIABLES if name in environ
    ]
    return variables + [[_named(path, folder), text] for path, text in _files(environ, folder)]


def _named(path: Path, folder: Path) -> str:
    """The path of a file as part of a key: a project is the same wherever it lies."""
    above = path.parent in (folder, *folder.parents)
    return os.path.relpath(path, folder) if above else os.fspath(path)


def project_settings(environ: Mapping[str, str], folder: Path) -> tuple[Path, str] | None:
    """The settings file of the nearest project, and its text."""
    settings = next(_project(folder), None) if not _off(environ) else None
    text = _text(settings[0]) if settings else None
    return (settings[0], text) if settings and text is not None else None


def _files(environ: Mapping[str, str], folder: Path) -> Iterator[tuple[Path, str]]:
    user_files = [folder / path for name in _FILES for path in environ.get(name, "").split()]
    home = environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")
    own = () if _off(environ) else (Path("/etc/uv/uv.toml"), Path(home) / "uv" / "uv.toml")
    for path in (*user_files, *own):
        text = _text(path)
        if text is not None:
            yield path, without_credentials(text)
    if not _off(environ):
        yield from _project(folder)


def _off(environ: Mapping[str, str]) -> bool:
    return bool(environ.get("UV_NO_CONFIG") or environ.get("UV_CONFIG_FILE"))


def _project(folder: Path) -> Iterator[tuple[Path, str]]:
    """The settings of the nearest project; of a `pyproject.toml` only the table `tool.uv`."""
    for home in (folder, *folder.parents):
        text = _text(home / "uv.toml")
        if text is not None:
            yield home / "uv.toml", without_credentials(text)
            return
        text = _text(home / "pyproject.toml")
        if text is None or "tool.uv" not in text:
            continue
        try:
            tables = tomllib.loads(text).get("tool", {}).get("uv")
        except (tomllib.TOMLDecodeError, AttributeError):
            continue
        if tables is not None:
            yield home / "pyproject.toml", without_credentials(repr(tables))
            return


def _text(path: Path) -> str | None:
    try:
        return read_regular(path).decode("utf-8", "surrogateescape")
    except OSError:
        return None
