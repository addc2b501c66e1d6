"""From what is declared to a lock: exact versions and hashes for one interpreter. Known at plan,
before anything is built, and remembered: it stays until what it depends on changes."""

import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from sgpu_decl.agent.environment.manifest import Python
from sgpu_decl.config.env import EnvironmentBlock
from sgpu_decl.diagnostics.diagnostic import Diagnostic, Related, Severity, has_errors
from sgpu_decl.diagnostics.place import Place
from sgpu_decl.environments.declared.calling_uv import find_uv
from sgpu_decl.environments.declared.compiling import Refused, compile_asked, export_project
from sgpu_decl.environments.declared.lock import Lock
from sgpu_decl.environments.declared.locking import Unusable, lock_of
from sgpu_decl.environments.declared.pythons import LocalPython
from sgpu_decl.environments.declared.requested import Asked, read_asked
from sgpu_decl.environments.declared.resolutions import Resolutions, Resolved
from sgpu_decl.environments.declared.settings import uv_settings
from sgpu_decl.environments.known.locks import read_lock
from sgpu_decl.environments.known.requirements import read_text
from sgpu_decl.environments.progress import Progress
from sgpu_decl.errors import SgpuError
from sgpu_decl.model.jsonable import Json

__all__ = ["Asking", "resolve"]

FORMAT = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Asking:
    """Everything that a resolution depends on.

    `folder` is what relative paths start from; `places` tell where fields were written, those of
    `block` below `at`; `constraints` are requirement lines that bind versions and ask for nothing.
    """

    block: EnvironmentBlock
    python: LocalPython
    folder: Path
    environ: Mapping[str, str]
    places: Mapping[str, Place]
    at: str = "env"
    constraints: tuple[str, ...] = ()

    def place(self, *fields: str) -> Place | None:
        """Where the first of these fields was written."""
        found = (self.places.get(f"{self.at}.{name}") for name in fields)
        return next((it for it in found if it is not None), self.places.get(self.at))


def resolve(
    asking: Asking,
    known: Resolutions,
    progress: Progress,
    *,
    previous: Lock | None = None,
    upgrade: bool = False,
) -> tuple[Lock | None, tuple[Diagnostic, ...]]:
    """Return the lock of a declared environment, or `None` and why there is none.

    What was resolved once is taken from `known`: no network, no process. uv is asked, and may ask
    an index, when what it depends on has changed.

    Args:
        previous: the lock that was applied last; its versions are kept where they still fit.
        upgrade: resolve anew, to the newest versions that fit.

    Raises:
        OSError: the resolution cannot be remembered.
    """
    clashing = _clashes(asking)
    if clashing:
        return None, clashing
    lock = asking.block.lock
    if lock is not None and Path(lock).suffix in (".toml", ".lock"):
        return _from_lock(asking, known, lock)
    asked = read_asked(asking.block, folder=asking.folder, places=asking.places, at=asking.at)
    if lock is not None and not asked.hashed and not has_errors(asked.found):
        asked.found.append(_unhashed(lock, asking.place("lock")))
    if has_errors(asked.found):
        return None, tuple(asked.found)
    inputs = _inputs(asking, asked)
    resolved = None if upgrade else known.recall(inputs)
    if resolved is None:
        count = len(asked.wanted)
        progress.advance("resolving", 0, count)
        try:
            resolved = compile_asked(
                asked,
                uv=find_uv(asking.environ) if asked.wanted else "",
                python=asking.python,
                folder=asking.folder,
                environ=asking.environ,
                constraints=asking.constraints,
                previous=previous,
                upgrade=upgrade,
            )
        except (Refused, Unusable, SgpuError) as error:
            return None, (_finding(asking, asked, error),)
        progress.advance("resolving", count, count)
        known.remember(inputs, resolved)
    return _shown(asking, asked, resolved)


def _from_lock(
    asking: Asking, known: Resolutions, name: str
) -> tuple[Lock | None, tuple[Diagnostic, ...]]:
    """A lock in TOML is taken as it is."""
    path = asking.folder / os.path.expanduser(name)
    place = asking.place("lock")
    if path.is_dir() or not path.exists():
        return None, (_missing(name, path, place),)
    texts = [it for it in (path, path.with_name("pyproject.toml")) if it.exists()]
    read = [read_text(it, os.path.relpath(it, asking.folder), place) for it in texts]
    unread = tuple(it for it in read if isinstance(it, Diagnostic))
    if unread:
        return None, unread
    identity = _identity(asking.python.python)
    inputs: Json = [FORMAT, "lock", identity, name, *map(str, read)]
    resolved = known.recall(inputs)
    if resolved is None:
        locked, found = read_lock(path, name, python=asking.python.python)
        if locked is None:
            return None, found
        misfit = _misfit(name, locked.python, asking)
        if misfit is not None:
            return None, (misfit,)
        try:
            resolved = (
                export_project(
                    uv=find_uv(asking.environ),
                    python=asking.python,
                    project=path.parent,
                    folder=asking.folder,
                    environ=asking.environ,
                )
                if locked.kind == "uv"
                else _pylock(path, str(read[0]), asking)
            )
        except (Refused, Unusable, SgpuError) as error:
            return None, (_finding(asking, Asked(), error),)
        known.remember(inputs, resolved)
    return _shown(asking, Asked(), resolved)


def _pylock(path: Path, text: str, asking: Asking) -> Resolved:
    data = tomllib.loads(text)
    python = asking.python.python
    return Resolved(lock_of(data, python, source=path.parent, folder=asking.folder))


def _inputs(asking: Asking, asked: Asked) -> Json:
    """What the answer depends on. Not the patch version of Python: a new one changes nothing."""
    files = sorted([os.path.relpath(it, asking.folder), text] for it, text in asked.files.items())
    return [
        FORMAT,
        "asked",
        _identity(asking.python.python),
        list(asked.lines),
        os.path.relpath(asked.root, asking.folder) if asked.root else None,
        files,
        list(asking.constraints),
        uv_settings(asking.environ, asking.folder),
    ]


def _identity(python: Python) -> list[str]:
    return [python.implementation, python.minor, python.abi, python.platform]


def _shown(asking: Asking, asked: Asked, resolved: Resolved) -> tuple[Lock, tuple[Diagnostic, ...]]:
    warnings = tuple(
        Diagnostic(
            code=it.code,
            severity=Severity.WARNING,
            summary=it.summary,
            place=next(iter(asked.places(it.names)), _whole(asking)),
        )
        for it in resolved.warned
    )
    return replace(resolved.lock, python=asking.python.python), (*asked.found, *warnings)


def _finding(asking: Asking, asked: Asked, error: Refused | Unusable | SgpuError) -> Diagnostic:
    """What went wrong, at the requirement that it is about; at others that are named, too."""
    match error:
        case Refused():
            said = error.complaint
            first, *others = [*asked.places(error.names), _whole(asking)]
            related = tuple(
                Related(place=it, note="and this requirement") for it in others[:-1] if it
            )
            return Diagnostic(
                code=said.code, summary=said.told, place=first, hint=said.hint, related=related
            )
        case Unusable():
            place = next(iter(asked.places({error.name})), _whole(asking))
            return Diagnostic(code=error.code, summary=error.summary, place=place, hint=error.hint)
        case SgpuError():
            return Diagnostic(
                code=error.code, summary=error.message, place=_whole(asking), hint=error.hint
            )


def _whole(asking: Asking) -> Place | None:
    return asking.place("lock", "requirements", "dependencies")


def _clashes(asking: Asking) -> tuple[Diagnostic, ...]:
    block = asking.block
    others = [
        name
        for name in ("dependencies", "requirements")
        if getattr(block, name) is not None and block.lock is not None
    ]
    return tuple(
        Diagnostic(
            code="environment_declared_twice",
            summary=f"`lock` is a whole environment, and `{name}` declares another",
            place=asking.place(name),
            hint="keep one of the two; a lock takes new packages by its own tool (`uv add`)",
        )
        for name in others
    )


def _misfit(name: str, requires: str | None, asking: Asking) -> Diagnostic | None:
    from packaging.specifiers import InvalidSpecifier, SpecifierSet

    version = asking.python.python.version
    try:
        if requires is None or SpecifierSet(requires).contains(version, prereleases=True):
            return None
    except InvalidSpecifier:
        return None
    return Diagnostic(
        code="python_mismatch",
        summary=f"`{name}` is for Python {requires}, and the run uses {version}",
        place=asking.place("python", "lock"),
        hint="set `env.python` to a version that it is for, or lock again",
    )


def _missing(name: str, path: Path, place: Place | None) -> Diagnostic:
    return Diagnostic(
        code="lock_missing",
        summary=f"there is no file `{name}`",
        place=place,
        hint=f"relative paths start from `{path.parent}`; `uv lock` makes a `uv.lock`",
    )


def _unhashed(name: str, place: Place | None) -> Diagnostic:
    return Diagnostic(
        code="lock_without_hashes",
        summary=f"`{name}` has no hashes: what would be installed is not fixed",
        place=place,
        hint="make it with `uv pip compile --generate-hashes`, or give it as `env.requirements`: "
        "it is then resolved for you",
    )
