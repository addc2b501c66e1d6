"""The interpreter that an environment is made for: found on this machine, and known by what it says
of itself. Nothing is downloaded."""

import contextlib
import json
import os
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from sgpu_decl.agent.environment.manifest import Python
from sgpu_decl.diagnostics.diagnostic import Diagnostic
from sgpu_decl.environments.captured.interpreter import ask
from sgpu_decl.staging.references import write_whole

__all__ = ["LocalPython", "find_python"]

_VERSION = re.compile(r"(\d+\.\d+)(\.\d+)?")


class LocalPython(NamedTuple):
    """An interpreter of this machine."""

    executable: str
    python: Python


def find_python(
    wanted: str | None, *, folder: Path, environ: Mapping[str, str], memory: Path
) -> LocalPython | None:
    """Return the interpreter that `env.python` asks for, or `None` where this machine lacks it.

    Args:
        wanted: a version, `3.12` or `3.12.1`, which the interpreter of sgpu itself may have, one on
            the PATH, or one that uv installed; a path; or `None` for that of sgpu itself.
        folder: what a relative path starts from.
        memory: a file that remembers what interpreters said of themselves.
    """
    known = _Known(memory)
    if wanted is not None and "/" in wanted:
        return known.ask(os.fspath(folder / os.path.expanduser(wanted)))
    own = known.ask(sys.executable)
    if own is None or wanted is None or _is(own, wanted):
        return own
    for path in _candidates(wanted, environ):
        found = known.ask(path)
        if found is not None and _is(found, wanted):
            return found
    return None


def _is(found: LocalPython, wanted: str) -> bool:
    return f"{found.python.version}.".startswith(f"{wanted}.")


def _candidates(wanted: str, environ: Mapping[str, str]) -> Iterator[str]:
    match = _VERSION.fullmatch(wanted)
    if match is None:
        return
    name = f"python{match[1]}"
    for folder in environ.get("PATH", "").split(os.pathsep):
        path = os.path.join(folder, name)
        if folder and os.access(path, os.X_OK):
            yield path
    yield from map(os.fspath, sorted(_uv_folder(environ).glob(f"cpython-{match[1]}.*/bin/{name}")))


def _uv_folder(environ: Mapping[str, str]) -> Path:
    """Where uv keeps the interpreters that a user had it install."""
    if named := environ.get("UV_PYTHON_INSTALL_DIR"):
        return Path(named)
    data = environ.get("XDG_DATA_HOME") or os.path.expanduser("~/.local/share")
    return Path(data) / "uv" / "python"


class _Known:
    """What interpreters said of themselves, by what the file system says of them. What is no
    interpreter itself but leads to one, as a shim does, is asked each time."""

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            known = json.loads(path.read_bytes())
        except (OSError, ValueError):
            known = {}
        self._known = known if isinstance(known, dict) else {}

    def ask(self, path: str) -> LocalPython | None:
        try:
            real = os.path.realpath(path, strict=True)
            facts = os.stat(real)
        except OSError:
            return None
        key = f"{real}\0{facts.st_size}\0{facts.st_mtime_ns}\0{facts.st_ino}"
        found = self._known.get(key)
        if not isinstance(found, list) or len(found) != len(Python._fields):
            said = ask(path)
            if isinstance(said, Diagnostic):
                return None
            if os.path.realpath(said.executable) != real:
                return LocalPython(said.executable, said.python)
            found = self._known[key] = list(said.python)
            with contextlib.suppress(OSError):  # costs speed only
                self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                write_whole(self._path, json.dumps(self._known).encode())
        return LocalPython(path, Python(*found))
