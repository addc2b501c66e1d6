"""From what is declared to a lock: exact versions and hashes for one interpreter. Known at plan,
before anything is built, and remembered: it stays until what it depends on changes."""

import os
import tomllib
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from sgpu_decl.agent.environment.manifest import Python
from sgpu_decl.diagnostics.diagnostic import Diagnostic, Related, Severity, has_errors
from sgpu_decl.diagnostics.place import Place
from sgpu_decl.environments.declared.interpreter_lock import UnusableLock, lock_of
from sgpu_decl.environments.declared.local_sources import local_sources_of_settings
from sgpu_decl.environments.declared.lock import Lock
from sgpu_decl.environments.declared.requirement_inputs import (
    RequirementInputs,
    read_requirement_inputs,
)
from sgpu_decl.environments.declared.resolution_cache import Resolution, ResolutionCache
from sgpu_decl.environments.declared.uv import find_uv
from sgpu_decl.environments.declared.uv_compile import UvFailure, compile_asked, export_project
from sgpu_decl.environments.declared.uv_settings import project_settings, uv_settings
from sgpu_decl.environments.interpreters import LocalPython
from sgpu_decl.environments.package_lists.lock_file import LockedPackages
from sgpu_decl.environments.package_lists.lock_kinds import read_lock
from sgpu_decl.environments.package_lists.requirements import read_text
from sgpu_decl.errors import SgpuError
from sgpu_decl.model.jsonable import Json
from sgpu_decl.model.step_progress import Progress

if TYPE_CHECKING:
    from sgpu_decl.config.env import EnvironmentBlock

__all__ = ["ResolveRequest", "resolve"]

FORMAT = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolveRequest:
    """Everything that a resolution depends on.

    `folder` is what relative paths start from; `places` tell where fields were written, those of
    `block` below `at`; `constraints` are requirement lines that bind versions and ask for nothing.
    """

    block: "EnvironmentBlock"
    python: LocalPython
    folder: Path
    environ: Mapping[str, str]
    places: Mapping[str, Place]
    at: str = "env"
    constraints: tuple[str, ...] = ()

    def place(self, *fields: str) -> Place | None:
        """Where the first of these fields was written."""
        found = (self.places.get(f"{self.at}.{name}") for name in fields)
        return next((item for item in found if item is not None), self.places.get(self.at))


def resolve(
    asking: ResolveRequest,
    known: ResolutionCache,
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
    lock = asking.block.lock
    if lock is not None and Path(lock).suffix in (".toml", ".lock"):
        return _from_lock(asking, known, lock)
    asked = read_requirement_inputs(
        asking.block, folder=asking.folder, places=asking.places, at=asking.at
    )
    if lock is not None and not asked.hashed and not has_errors(asked.found):
        asked.found.append(_unhashed(lock, asking.place("lock")))
    if (settings := project_settings(asking.environ, asking.folder)) is not None:
        asked.found += local_sources_of_settings(*settings, _whole(asking))
    if asking.environ.get("UV_NO_INDEX"):
        asked.found.append(_no_index(_whole(asking)))
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
        except (UvFailure, UnusableLock, SgpuError) as error:
            return None, (_finding(asking, asked, error),)
        progress.advance("resolving", count, count)
        known.remember(inputs, resolved)
    return _shown(asking, asked, resolved)


def _from_lock(
    asking: ResolveRequest, known: ResolutionCache, name: str
) -> tuple[Lock | None, tuple[Diagnostic, ...]]:
    """A lock in TOML is taken as it is."""
    path = asking.folder / os.path.expanduser(name)
    place = asking.place("lock")
    if path.is_dir() or not path.exists():
        return None, (_missing(name, path, place),)
    texts = [item for item in (path, path.with_name("pyproject.toml")) if item.exists()]
    read = [read_text(text, os.path.relpath(text, asking.folder), place) for text in texts]
    unread = tuple(item for item in read if isinstance(item, Diagnostic))
    if unread:
        return None, unread
    identity = _identity(asking.python.python)
    inputs: Json = [FORMAT, "lock", identity, name, *map(str, read)]
    resolved = known.recall(inputs)
    if resolved is None:
        locked, found = read_lock(path, name, python=asking.python.python)
        if locked is None:
            return None, found
        misfit = _misfit(name, locked, asking)
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
        except (UvFailure, UnusableLock, SgpuError) as error:
            return None, (_finding(asking, RequirementInputs(), error),)
        known.remember(inputs, resolved)
    return _shown(asking, RequirementInputs(), resolved)


def _pylock(path: Path, text: str, asking: ResolveRequest) -> Resolution:
    data = tomllib.loads(text)
    python = asking.python.python
    return Resolution(lock_of(data, python, source=path.parent, folder=asking.folder))


def _inputs(asking: ResolveRequest, asked: RequirementInputs) -> Json:
    """What the answer depends on. Not the patch version of Python: a new one changes nothing."""
    files = sorted(
        [os.path.relpath(file, asking.folder), text] for file, text in asked.files.items()
    )
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


def _shown(
    asking: ResolveRequest, asked: RequirementInputs, resolved: Resolution
) -> tuple[Lock, tuple[Diagnostic, ...]]:
    warnings = tuple(
        Diagnostic(
            code=item.code,
            severity=Severity.WARNING,
            summary=item.summary,
            place=next(iter(asked.places(item.names)), _whole(asking)),
        )
        for item in resolved.warned
    )
    return replace(resolved.lock, python=asking.python.python), (*asked.found, *warnings)


def _finding(
    asking: ResolveRequest, asked: RequirementInputs, error: UvFailure | UnusableLock | SgpuError
) -> Diagnostic:
    """What went wrong, at the requirement that it is about; at others that are named, too."""
    match error:
        case UvFailure():
            said = error.complaint
            first, *others = [*asked.places(error.names), _whole(asking)]
            related = tuple(
                Related(place=other, note="and this requirement") for other in others[:-1] if other
            )
            return Diagnostic(
                code=said.code, summary=said.told, place=first, hint=said.hint, related=related
            )
        case UnusableLock():
            place = next(iter(asked.places({error.name})), _whole(asking))
            return Diagnostic(code=error.code, summary=error.summary, place=place, hint=error.hint)
        case SgpuError():
            return Diagnostic(
                code=error.code, summary=error.message, place=_whole(asking), hint=error.hint
            )


def _whole(asking: ResolveRequest) -> Place | None:
    return asking.place("lock", "requirements", "dependencies")


def _misfit(name: str, locked: LockedPackages, asking: ResolveRequest) -> Diagnostic | None:
    from packaging.specifiers import InvalidSpecifier, SpecifierSet

    version, requires, misfit = asking.python.python.version, locked.python, locked.misfit
    with suppress(InvalidSpecifier):
        if requires and not SpecifierSet(requires).contains(version, prereleases=True):
            misfit = f"is for Python {requires}, and the run uses {version}"
    if misfit is None:
        return None
    return Diagnostic(
        code="python_mismatch",
        summary=f"`{name}` {misfit}",
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


def _no_index(place: Place | None) -> Diagnostic:
    """uv has `--no-index` and `no-index` in its files, but no variable for it (uv 0.8 to 0.13)."""
    return Diagnostic(
        code="uv_no_index",
        severity=Severity.WARNING,
        summary="`UV_NO_INDEX` is set, and has no effect: uv does not know this variable",
        place=place,
        hint="write `no-index = true` in a `uv.toml` beside the file of the run",
    )
