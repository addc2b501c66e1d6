"""Finds the interpreter of ranks or of an environment on this machine. Nothing is downloaded.

A plan runs no program of the project. For a virtual environment of the project it runs the
interpreter that the environment was made from, if that lies outside of the project.
"""

import importlib.util
import json
import os
import platform
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from sgpu_decl.atomic_files import write_cache
from sgpu_decl.content.manifest import Python
from sgpu_decl.diagnostics.diagnostic import Diagnostic
from sgpu_decl.diagnostics.place import Place
from sgpu_decl.environments.package_lists.packages import installed, this_interpreter
from sgpu_decl.environments.package_lists.site_folders import site_folders, virtual_environment
from sgpu_decl.errors import BackendError
from sgpu_decl.model.desired import Interpreter
from sgpu_decl.model.environment import PackageList
from sgpu_decl.regular_files import is_below

_VERSION = re.compile(r"(\d{1,4}\.\d{1,4})(\.\d{1,4})?")
_NAME = re.compile(r"(python|pypy|graalpy)[\w.]*")
_FREE_THREADED = re.compile(r"cpython-\d+t\b")
OLDEST_OF_RANKS = (3, 10)
"""The oldest Python of ranks, since `rank/` and `agent/` run in it."""


def too_old(version: str) -> bool:
    """Whether no rank can have this Python, of which at least `3.9` is given."""
    return tuple(map(int, version.split(".")[:2])) < OLDEST_OF_RANKS


class LocalPython(NamedTuple):
    """An interpreter of this machine. `program` is what is run to ask it: itself, or what its
    virtual environment was made from, so that no `.pth` file of the environment is run."""

    executable: str
    python: Python
    program: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NoPython:
    """This machine lacks an interpreter. `rejections` are paths that are not used, with the reason;
    `untrusted` is an interpreter in the project, which a plan does not run; `old` is the version of
    one that is too old for ranks."""

    version: str
    rejections: tuple[tuple[str, str], ...] = ()
    untrusted: str | None = None
    old: str | None = None

    @property
    def error(self) -> BackendError:
        """The error that a launch raises."""
        missing = self.diagnostic(None)
        if self.old is not None:
            return BackendError(missing.summary, hint=missing.hint, code="python_too_old")
        return BackendError(missing.summary, hint=missing.hint, code="python_missing")

    def diagnostic(self, place: Place | None) -> Diagnostic:
        """The error that a plan shows."""
        if self.untrusted is not None:
            return Diagnostic(
                code="interpreter_untrusted",
                summary=f"the interpreter `{self.untrusted}` lies in the project, and a plan runs "
                "no program of the project",
                place=place,
                hint="if you trust the project, `sgpu plan --trust-project` runs it; `sgpu apply` "
                "always does",
            )
        if self.old is not None:
            oldest = ".".join(map(str, OLDEST_OF_RANKS))
            path = f", `{self.rejections[0][0]}`" if self.rejections else ""
            return Diagnostic(
                code="python_too_old",
                summary=f"ranks need Python {oldest} or newer, and `env.python: {self.version}` is "
                f"{self.old}{path}",
                place=place,
                hint=f"name a newer one, such as `{platform.python_version()}`, and lock again if "
                "the lock file is for the old one",
            )
        if "/" in self.version:
            summary = f"is not a working interpreter: {self.rejections[0][1]}"
            hint = "name the Python 3 that runs your code, for example `.venv/bin/python`"
        elif _VERSION.fullmatch(self.version) is None:
            summary = "is neither a version nor a path"
            hint = (
                "write a version such as `3.12`, or the path of an interpreter such as "
                "`/usr/bin/python3`"
            )
        else:
            reasons = (f"`{path}` was passed over: {reason}" for path, reason in self.rejections)
            hint = "install it on the PATH, name an interpreter by its path, or leave "
            return Diagnostic(
                code="python_missing",
                summary=f"this machine has no Python `{self.version}`",
                place=place,
                hint="; ".join((*reasons, hint + "`env.python` out")),
            )
        return Diagnostic(
            code="python_missing",
            summary=f"`env.python: {self.version}` {summary}",
            place=place,
            hint=hint,
        )


def interpreter_of(
    python: str | None, folder: Path, pythons: "Callable[[], Pythons]"
) -> Interpreter | NoPython:
    """Return the interpreter that `env.python` names. The interpreter of sgpu itself is not run;
    for one in a project that is not trusted, only the path is known. Packages are read from the
    names of files.

    Args:
        folder: the base of a relative path.
        pythons: makes the finder, which most runs do not need.
    """
    if python is None or _has_version(platform.python_version(), python):
        return _own(tuple(_changed(folder) for folder in sys.path))
    answer = pythons().find(python, folder)
    if not isinstance(answer, NoPython):
        return Interpreter(
            executable=answer.executable,
            version=answer.python.version,
            packages=_packages(answer),
        )
    if answer.untrusted is not None:
        return Interpreter(executable=answer.untrusted, version=None)
    return answer


@lru_cache(maxsize=1024)
def has_package(interpreter: Interpreter, top: str) -> bool:
    """Whether an interpreter may have a top-level package. Nothing is imported, so only the
    interpreter of sgpu itself is searched; for others the answer is yes."""
    if interpreter.executable != sys.executable:
        return True
    try:
        return importlib.util.find_spec(top) is not None
    except (ImportError, ValueError):  # a finder that fails, or a module without a spec
        return True


class Pythons:
    """Finds interpreters.

    Args:
        environ: has the PATH, and the variables of uv and pyenv.
        memory: the file that caches the answers of interpreters; that of the user if left out.
        guarded: the folder of a project; programs in it are not run.
    """

    def __init__(
        self,
        environ: Mapping[str, str],
        memory: Path | None = None,
        *,
        guarded: Path | None = None,
    ) -> None:
        self._environ = environ
        self._cache = _InterpreterCache(memory or _default_memory())
        self._guarded = guarded
        self._answers: dict[tuple[str | None, Path], LocalPython] = {}

    def find(self, version: str | None, folder: Path) -> LocalPython | NoPython:
        """Return the interpreter that `env.python` names.

        Args:
            version: a version, `3.12` or `3.12.1`: searched are the interpreter of sgpu itself, the
                PATH, and those that uv and pyenv installed, the newest first. Or a path, or `None`
                for the interpreter of sgpu itself.
            folder: the base of a relative path.
        """
        key = (version, folder)
        if version is not None and _VERSION.fullmatch(version) and too_old(version):
            return NoPython(version=version, old=version)
        if key not in self._answers:
            answer = self._find(version, folder)
            if isinstance(answer, NoPython):
                return answer
            if version is not None and too_old(answer.python.version):
                path = ((answer.executable, ""),)
                return NoPython(version=version, rejections=path, old=answer.python.version)
            self._answers[key] = answer
        return self._answers[key]

    def _find(self, version: str | None, folder: Path) -> LocalPython | NoPython:
        if version is not None and "/" in version:
            path = os.path.normpath(folder / os.path.expanduser(version))
            answer = self._ask(path)
            return _lacking(version, [(path, answer)]) if isinstance(answer, _Reason) else answer
        own = self._ask(sys.executable)
        if isinstance(own, LocalPython) and (
            version is None or _has_version(own.python.version, version)
        ):
            return own
        rejections: list[tuple[str, _Reason]] = []
        for path in _candidates(version or "", self._environ):
            answer = self._ask(path)
            if isinstance(answer, LocalPython):
                if not _has_version(answer.python.version, version or ""):
                    continue
                if not _FREE_THREADED.match(answer.python.abi):
                    return answer
                answer = _Reason("it is free-threaded; name it by its path to use it")
            rejections.append((path, answer))
            if answer.untrusted:  # a plan and an apply must choose the same interpreter
                break
        return _lacking(version or "", rejections)

    def _ask(self, path: str) -> "LocalPython | _Reason":
        program = os.path.realpath(path)
        named = _NAME.fullmatch(os.path.basename(program)) is not None
        if path == sys.executable:
            answer = self._cache.ask(path, path)
            if named and isinstance(answer, LocalPython) and virtual_environment(path):
                return answer._replace(program=program)
            return answer
        if self._guarded is not None and is_below(path, self._guarded):
            inside = is_below(program, os.path.realpath(self._guarded))
            if inside and os.path.isfile(program) and os.access(program, os.X_OK):
                return _Reason("it lies in the project", untrusted=True)
            if not inside and not named:
                return _Reason(f"it links to `{program}`, which is not a Python")
        elif not named or not virtual_environment(path):
            program = path
        return self._cache.ask(path, program)


class _Reason(NamedTuple):
    why: str
    untrusted: bool = False


def _lacking(version: str, rejections: list[tuple[str, _Reason]]) -> NoPython:
    return NoPython(
        version=version,
        rejections=tuple((path, reason.why) for path, reason in rejections),
        untrusted=next((path for path, reason in rejections if reason.untrusted), None),
    )


def _has_version(version: str, prefix: str) -> bool:
    return f"{version}.".startswith(f"{prefix}.")


def _changed(folder: str) -> int | None:
    try:
        return os.stat(folder).st_mtime_ns
    except OSError:
        return None


@lru_cache(maxsize=1)
def _own(changed: tuple[int | None, ...]) -> Interpreter:  # noqa: ARG001  the key
    """The interpreter of sgpu itself. A process that runs for days sees new packages."""
    return Interpreter(
        executable=sys.executable,
        version=platform.python_version(),
        packages=PackageList.of(this_interpreter().packages),
    )


def _packages(found: LocalPython) -> PackageList | None:
    """The packages of another interpreter, by the names of files; None if it is not CPython."""
    if found.python.implementation != "cpython":
        return None
    threaded = "t" if _FREE_THREADED.match(found.python.abi) else ""
    folders = site_folders(found.executable, found.python.version, os.environ, threaded=threaded)
    return PackageList.of(installed(folders)) if folders is not None else None


def _candidates(version: str, environ: Mapping[str, str]) -> Iterator[str]:
    match = _VERSION.fullmatch(version)
    if match is None:
        return
    name = f"python{match[1]}"
    for folder in environ.get("PATH", "").split(os.pathsep):
        path = os.path.join(folder, name)
        if os.path.isabs(folder) and os.access(path, os.X_OK):
            yield path
    # uv keeps a link `3.12` to the newest `3.12.1`, which is found by its own name.
    yield from _newest_first(_uv_folder(environ), f"cpython-{match[1]}.*/bin/{name}")
    pyenv = Path(environ.get("PYENV_ROOT") or os.path.expanduser("~/.pyenv"))
    yield from _newest_first(pyenv, f"versions/{match[1]}*/bin/{name}")


def _newest_first(folder: Path, pattern: str) -> list[str]:
    """Of a folder that may be another user's, as `PYENV_ROOT` is under `su`, there are none."""

    def version(path: str) -> tuple[list[int], str]:
        numbers = re.findall(r"\d+", path.split(os.sep)[-3])
        return list(map(int, numbers[:3])), path

    try:
        return sorted(map(os.fspath, folder.glob(pattern)), key=version, reverse=True)
    except OSError:
        return []


def _uv_folder(environ: Mapping[str, str]) -> Path:
    """Where uv keeps the interpreters that it installed."""
    if folder := environ.get("UV_PYTHON_INSTALL_DIR"):
        return Path(folder)
    data = environ.get("XDG_DATA_HOME") or os.path.expanduser("~/.local/share")
    return Path(data) / "uv" / "python"


def _default_memory() -> Path:
    import platformdirs

    return Path(platformdirs.user_cache_path("sgpu")) / "pythons.json"


class _InterpreterCache:
    """The answers of interpreters, by their stat values. A shim, which leads to another
    interpreter, is asked each time."""

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            cached = json.loads(path.read_bytes())
        except (OSError, ValueError):
            cached = {}
        self._cache = cached if isinstance(cached, dict) else {}

    def ask(self, path: str, program: str) -> LocalPython | _Reason:
        """The interpreter at a path, by the answer of `program`."""
        from sgpu_decl.environments.captured.interpreter_facts import UnusableInterpreter, ask

        try:
            real = os.path.realpath(path, strict=True)
            facts = os.stat(real)
        except OSError as error:
            dangling = f"it links to `{os.path.realpath(path)}`, which does not exist"
            return _Reason(dangling if os.path.islink(path) else (error.strerror or "").lower())
        key = f"{real}\0{facts.st_size}\0{facts.st_mtime_ns}\0{facts.st_ino}"
        cached = self._cache.get(key)
        if not isinstance(cached, list) or len(cached) != len(Python._fields):
            answer = ask(program)
            if isinstance(answer, UnusableInterpreter):
                return _Reason(answer.why)
            if os.path.realpath(answer.executable) != real:
                return LocalPython(answer.executable, answer.python, answer.executable)
            cached = self._cache[key] = list(answer.python)
            write_cache(self._path, json.dumps(self._cache).encode())
        return LocalPython(path, Python(*cached), program)
