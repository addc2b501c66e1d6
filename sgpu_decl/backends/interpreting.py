"""Which Python the ranks of a run use on this machine. Nothing is started to find out."""

import importlib.util
import os
import platform
import re
import shutil
import sys
from functools import lru_cache
from pathlib import Path

from sgpu_decl.environments.known.installed import this_interpreter
from sgpu_decl.model.desired import Interpreter
from sgpu_decl.model.environment import PackageList

__all__ = ["has_package", "interpreter_of"]

_VERSION = re.compile(r"(\d+\.\d+)(?:\.\d+)?")


def interpreter_of(python: str | None, folder: Path) -> Interpreter | None:
    """Return the interpreter that `env.python` asks for, or `None` where this machine lacks it.

    Args:
        python: a version, which the interpreter of sgpu itself or one on the PATH may have; a path;
            or `None` for the interpreter of sgpu itself.
        folder: what a relative path starts from.
    """
    own = _own()
    if python is None or f"{own.version}.".startswith(f"{python}."):
        return own
    if "/" in python:
        path = folder / os.path.expanduser(python)
        named = path.is_file() and os.access(path, os.X_OK)
        return Interpreter(executable=os.fspath(path), version=None) if named else None
    match = _VERSION.fullmatch(python)
    # A full version cannot be told from the name of a program.
    found = shutil.which(f"python{python}") if match and match[1] == python else None
    return Interpreter(executable=found, version=python) if found else None


def _own() -> Interpreter:
    """The interpreter of sgpu itself; one that goes on for days sees what was installed since."""
    return _own_since(tuple(_changed(folder) for folder in sys.path))


def _changed(folder: str) -> int | None:
    try:
        return os.stat(folder).st_mtime_ns
    except OSError:
        return None


@lru_cache(maxsize=1)
def _own_since(changed: tuple[int | None, ...]) -> Interpreter:  # noqa: ARG001  the key
    return Interpreter(
        executable=sys.executable,
        version=platform.python_version(),
        packages=PackageList.of(this_interpreter().packages),
    )


@lru_cache(maxsize=1024)
def has_package(interpreter: Interpreter, top: str) -> bool:
    """Whether an interpreter may have a top-level package. Nothing is imported for it, so that only
    the interpreter of sgpu itself is known; others may have anything."""
    if interpreter.executable != sys.executable:
        return True
    try:
        return importlib.util.find_spec(top) is not None
    except (ImportError, ValueError):  # a finder that fails, or a module without a spec
        return True
