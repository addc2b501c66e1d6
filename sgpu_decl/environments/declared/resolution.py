"""Resolves a declared environment to a lock: exact versions and hashes for one interpreter.

A plan does it, before anything is built. The result is cached until an input changes."""

import os
import tomllib
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from sgpu_decl.content.manifest import Python
from sgpu_decl.diagnostics.diagnostic import Diagnostic, Related, Severity, has_errors
from sgpu_decl.diagnostics.place import Place
from sgpu_decl.environments.declared.interpreter_lock import UnusableLock, lock_of
from sgpu_decl.environments.declared.lock import Lock
from sgpu_decl.environments.declared.requirement_inputs import (
    RequirementInputs,
    read_requirement_inputs,
)
from sgpu_decl.environments.declared.resolution_cache import Resolution, ResolutionCache
from sgpu_decl.environments.declared.uv import find_uv
from sgpu_decl.environments.declared.uv_compile import (
    UvFailure,
    compile_requirements,
    export_project,
)
from sgpu_decl.environments.declared.uv_errors import untrusted_build
from sgpu_decl.environments.declared.uv_settings import building_settings, uv_settings
from sgpu_decl.environments.interpreters import OLDEST_OF_RANKS, LocalPython
from sgpu_decl.environments.package_lists.lock_file import LockedPackages
from sgpu_decl.environments.package_lists.lock_kinds import read_lock
from sgpu_decl.environments.package_lists.requirements import (
    RequirementLine,
    read_text,
    unshown,
)
from sgpu_decl.errors import SgpuError
from sgpu_decl.model.jsonable import Json
from sgpu_decl.model.step_progress import Progress
from sgpu_decl.regular_files import is_below, trusted_path

if TYPE_CHECKING:
    from sgpu_decl.config.env import EnvironmentBlock

FORMAT = 1
_MAY_BUILD = frozenset({"build_untrusted", "unresolvable", "no_matching_wheel"})


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolveRequest:
    """Everything that a resolution depends on.

    `folder` is the base of relative paths; `places` are those of fields, of `block` below `at`;
    `constraints` are requirement lines that limit versions and install nothing. `guarded` is the
    folder of a project that is not trusted: no uv of it is used, and uv builds nothing. `project`
    is its folder in any case: lines of files elsewhere are not shown.
    """

    block: "EnvironmentBlock"
    python: LocalPython
    folder: Path
    environ: Mapping[str, str]
    places: Mapping[str, Place]
    at: str = "env"
    constraints: tuple[str, ...] = ()
    guarded: Path | None = None
    project: Path | None = None

    @property
    def trusted_environ(self) -> Mapping[str, str]:
        """The variables of uv, which finds no program of an untrusted project: git, keyring."""
        return {**self.environ, "PATH": trusted_path(self.environ, self.guarded)}

    def place(self, *fields: str) -> Place | None:
        """The place of the first of these fields that was written."""
        places = (self.places.get(f"{self.at}.{name}") for name in fields)
        return next((item for item in places if item is not None), self.places.get(self.at))


def resolve(
    request: ResolveRequest,
    cache: ResolutionCache,
    progress: Progress,
    *,
    previous: Lock | None = None,
    upgrade: bool = False,
) -> tuple[Lock | None, tuple[Diagnostic, ...]]:
    """Return the lock of a declared environment, or `None` and the errors.

    A cached resolution needs no network and no process. uv runs, and may ask an index, when an
    input has changed.

    Args:
        previous: the lock that was applied last; its versions are preferred.
        upgrade: resolve again, to the newest versions that fit.

    Raises:
        OSError: the cache cannot be written.
    """
    lock = request.block.lock
    if lock is not None and Path(lock).suffix in (".toml", ".lock"):
        return _from_lock(request, cache, lock)
    inputs = read_requirement_inputs(
        request.block,
        folder=request.folder,
        places=request.places,
        at=request.at,
        project=request.project,
    )
    if lock is not None and not inputs.hashed and not has_errors(inputs.findings):
        inputs.findings.append(_unhashed(lock, request.place("lock")))
    if request.environ.get("UV_NO_INDEX"):
        inputs.findings.append(_no_index(_whole(request)))
    if has_errors(inputs.findings):
        return None, tuple(inputs.findings)
    key = _inputs(request, inputs)
    resolution = None if upgrade else cache.recall(key)
    if resolution is None:
        count = len(inputs.requirements)
        progress.advance("resolving", 0, count)
        try:
            resolution = _compiled(request, inputs, None if upgrade else previous, upgrade=upgrade)
        except (UvFailure, UnusableLock, SgpuError) as error:
            return None, (_finding(request, inputs, error),)
        progress.advance("resolving", count, count)
        cache.remember(key, resolution)
    return _shown(request, inputs, resolution)


def _compiled(
    request: ResolveRequest, inputs: RequirementInputs, previous: Lock | None, *, upgrade: bool
) -> Resolution:
    """Resolve without builds if that is possible, also where builds are allowed: a plan that may
    not build and its apply find the same versions.

    Raises:
        UvFailure, UnusableLock, SgpuError: as `compile_requirements`.
    """
    resolved = partial(
        compile_requirements,
        inputs,
        uv=find_uv(request.environ, request.guarded) if inputs.requirements else "",
        python=request.python,
        folder=request.folder,
        environ=request.trusted_environ,
        constraints=request.constraints,
        previous=previous,
        upgrade=upgrade,
    )
    if not inputs.requirements:
        return resolved(builds=False)
    builder = inputs.builder or building_settings(request.environ, request.folder)
    if builder is None:
        try:
            resolution = resolved(builds=False)
        except UvFailure as failure:
            if request.guarded is not None or failure.report.code not in _MAY_BUILD:
                raise
        else:
            replaced = _replaced_builds(previous, resolution.lock)
            if not replaced:
                return resolution
            builder = f"`{min(replaced)}`"
    if request.guarded is not None:
        raise UvFailure(untrusted_build(f"a package ({builder})"))
    return resolved(builds=True)


def _replaced_builds(previous: Lock | None, found: Lock) -> frozenset[str]:
    """The packages that were built for the previous lock, and of which a resolution without builds
    found another version, which has a wheel."""
    versions = {entry.name: entry.version for entry in found.entries}
    return frozenset(
        entry.name
        for entry in (previous.entries if previous is not None else ())
        if entry.repository is None
        and versions.get(entry.name, entry.version) != entry.version
        and not any(file.location.partition("#")[0].endswith(".whl") for file in entry.files)
    )


def _from_lock(
    request: ResolveRequest, cache: ResolutionCache, name: str
) -> tuple[Lock | None, tuple[Diagnostic, ...]]:
    """Read a lock in TOML, which needs no resolution."""
    path = request.folder / os.path.expanduser(name)
    place = request.place("lock")
    if path.is_dir() or not path.exists():
        return None, (_missing(name, path, place),)
    texts = [item for item in (path, path.with_name("pyproject.toml")) if item.exists()]
    texts_read = [read_text(text, os.path.relpath(text, request.folder), place) for text in texts]
    unreadable = tuple(item for item in texts_read if isinstance(item, Diagnostic))
    if unreadable:
        return None, unreadable
    identity = _identity(request.python.python)
    key: Json = [FORMAT, "lock", identity, name, *map(str, texts_read)]
    resolution = cache.recall(key)
    if resolution is None:
        locked, findings = read_lock(path, name, python=request.python.python)
        if locked is None:
            project = request.project
            if project is not None and not is_below(os.path.realpath(path), project):
                # Its lines are not shown.
                findings = tuple(replace(item, place=place, related=()) for item in findings)
            return None, findings
        misfit = _misfit(name, locked, request)
        if misfit is not None:
            return None, (misfit,)
        try:
            resolution = (
                export_project(
                    uv=find_uv(request.environ, request.guarded),
                    python=request.python,
                    project=path.parent,
                    folder=request.folder,
                    environ=request.trusted_environ,
                )
                if locked.kind == "uv"
                else _pylock(path, str(texts_read[0]), request)
            )
        except (UvFailure, UnusableLock, SgpuError) as error:
            return None, (_finding(request, RequirementInputs(), error),)
        cache.remember(key, resolution)
    return _shown(request, RequirementInputs(), resolution)


def _pylock(path: Path, text: str, request: ResolveRequest) -> Resolution:
    data = tomllib.loads(text)
    python = request.python.python
    return Resolution(lock_of(data, python, source=path.parent, folder=request.folder))


def _inputs(request: ResolveRequest, inputs: RequirementInputs) -> Json:
    """The key of the cache. The patch version of Python is no part of it."""
    files = sorted(
        [os.path.relpath(file, request.folder), text] for file, text in inputs.files.items()
    )
    return [
        FORMAT,
        "asked",
        _identity(request.python.python),
        list(inputs.lines),
        os.path.relpath(inputs.root, request.folder) if inputs.root else None,
        files,
        list(request.constraints),
        uv_settings(request.environ, request.folder),
    ]


def _identity(python: Python) -> list[str]:
    return [python.implementation, python.minor, python.abi, python.platform]


def _shown(
    request: ResolveRequest, inputs: RequirementInputs, resolution: Resolution
) -> tuple[Lock, tuple[Diagnostic, ...]]:
    warnings = tuple(
        Diagnostic(
            code=item.code,
            severity=Severity.WARNING,
            summary=item.summary,
            place=next(iter(inputs.places(item.names)), _whole(request)),
        )
        for item in resolution.warnings
    )
    return replace(resolution.lock, python=request.python.python), (*inputs.findings, *warnings)


def _finding(
    request: ResolveRequest, inputs: RequirementInputs, error: UvFailure | UnusableLock | SgpuError
) -> Diagnostic:
    """The error, at the requirement that it names; further ones are related places."""
    match error:
        case UvFailure():
            report = error.report
            if outside := _outside_line(inputs, error):
                return unshown(outside, report.code)
            first, *others = [*inputs.places(error.names), _whole(request)]
            related = tuple(
                Related(place=other, note="and this requirement") for other in others[:-1] if other
            )
            return Diagnostic(
                code=report.code,
                summary=report.message,
                place=first,
                hint=report.hint,
                related=related,
            )
        case UnusableLock():
            place = next(iter(inputs.places({error.name})), _whole(request))
            return Diagnostic(code=error.code, summary=error.summary, place=place, hint=error.hint)
        case SgpuError():
            return Diagnostic(
                code=error.code, summary=error.message, place=_whole(request), hint=error.hint
            )


def _outside_line(inputs: RequirementInputs, error: UvFailure) -> RequirementLine | None:
    """A line of a file outside of the project that the words of uv may show."""
    parsed = error.report.code != "bad_requirement"
    words = error.report.detail
    return next(
        (
            one
            for one in inputs.outside
            if not parsed or one.name in error.names or one.requirement.rpartition("/")[2] in words
        ),
        None,
    )


def _whole(request: ResolveRequest) -> Place | None:
    return request.place("lock", "requirements", "dependencies")


def _misfit(name: str, locked: LockedPackages, request: ResolveRequest) -> Diagnostic | None:
    from packaging.specifiers import InvalidSpecifier, SpecifierSet

    version, requires, misfit = request.python.python.version, locked.python, locked.misfit
    hint = "set `env.python` to a version that it is for, or lock again"
    with suppress(InvalidSpecifier):
        if requires and not SpecifierSet(requires).contains(version, prereleases=True):
            misfit = f"is for Python {requires}, and the run uses {version}"
            oldest, minor = OLDEST_OF_RANKS
            newer = [f"{oldest}.{number}" for number in range(minor, minor + 20)]
            if not any(map(SpecifierSet(requires).contains, newer)):
                hint = f"lock for another one: ranks need Python {newer[0]} or newer"
    if misfit is None:
        return None
    return Diagnostic(
        code="python_mismatch",
        summary=f"`{name}` {misfit}",
        place=request.place("python", "lock"),
        hint=hint,
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
        summary=f"`{name}` has no hashes: other files could be installed",
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
