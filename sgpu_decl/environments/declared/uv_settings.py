"""The user's settings for uv that a resolution depends on: indexes, and rules for versions. They
are read as uv reads them; credentials are left out.

https://docs.astral.sh/uv/concepts/configuration-files/
"""

import os
import re
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path

from sgpu_decl.environments.declared.uv import without_credentials
from sgpu_decl.environments.package_lists.toml import table
from sgpu_decl.regular_files import read_regular

_VARIABLES = (
    "UV_INDEX", "UV_DEFAULT_INDEX", "UV_INDEX_URL", "UV_EXTRA_INDEX_URL", "UV_FIND_LINKS",
    "UV_INDEX_STRATEGY", "UV_RESOLUTION", "UV_PRERELEASE", "UV_FORK_STRATEGY", "UV_EXCLUDE_NEWER",
    "UV_TORCH_BACKEND", "UV_NO_SOURCES", "UV_NO_BUILD", "UV_NO_BUILD_PACKAGE", "UV_NO_BINARY",
    "UV_NO_BINARY_PACKAGE", "UV_NO_CONFIG",
)  # fmt: skip
_FILES = ("UV_CONSTRAINT", "UV_OVERRIDE", "UV_EXCLUDE", "UV_BUILD_CONSTRAINT", "UV_CONFIG_FILE")
_OPTION = re.compile(r"\s*-(?!-hash)")


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


def building_settings(environ: Mapping[str, str], folder: Path) -> str | None:
    """What makes uv build packages though it is told `--no-build`: a file that names packages as
    `no-binary`, or one that cannot be read here. Which project uv takes its settings from depends
    on workspaces, so those of all folders above count."""
    for name in _FILES[:-1]:
        for path in environ.get(name, "").split():
            lines = (_text(folder / path) or "").splitlines()
            if any(map(_OPTION.match, lines)):
                return f"`{path}`, by `{name}`"
    if config := environ.get("UV_CONFIG_FILE"):
        files = [folder / config]
    elif environ.get("UV_NO_CONFIG"):
        return None
    else:
        real = Path(os.path.realpath(folder))
        above = dict.fromkeys((folder, *folder.parents, real, *real.parents))
        files = [home / name for home in above for name in ("uv.toml", "pyproject.toml")]
        files += _own(environ)
    return next((f"`{file}`" for file in files if _asks_for_builds(file)), None)


def _asks_for_builds(file: Path) -> bool:
    text = _text(file)
    if text is None:
        return False
    try:
        data = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError):
        return "no-binary" in text or "\\" in text  # a key may be written with escapes
    settings = [data, table(table(data.get("tool")).get("uv"))]
    settings += [table(one.get("pip")) for one in settings]
    return any(
        value for one in settings for key, value in one.items() if key.startswith("no-binary")
    )


def _files(environ: Mapping[str, str], folder: Path) -> Iterator[tuple[Path, str]]:
    user_files = [folder / path for name in _FILES for path in environ.get(name, "").split()]
    own = [] if _off(environ) else _own(environ)
    for path in (*user_files, *own):
        text = _text(path)
        if text is not None:
            yield path, without_credentials(text)
    if not _off(environ):
        yield from _project(folder)


def _own(environ: Mapping[str, str]) -> list[Path]:
    """The files of the machine and of the user."""
    home = environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")
    return [Path("/etc/uv/uv.toml"), Path(home) / "uv" / "uv.toml"]


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
        if text is None or "uv" not in text:
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
