"""Declared environments: the packages that each would have now, and how to make it."""

import os
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from sgpu_decl.code.repository import repository_top
from sgpu_decl.diagnostics.diagnostic import Diagnostic, has_errors
from sgpu_decl.diagnostics.place import Place
from sgpu_decl.environments.interpreters import NoPython
from sgpu_decl.frozen_dataclass import dataclass
from sgpu_decl.model.address import Address, Kind
from sgpu_decl.model.desired import Interpreter
from sgpu_decl.model.environment import DesiredEnvironment, Package, PackageList
from sgpu_decl.model.jsonable import Json, Spec
from sgpu_decl.model.state import Resource
from sgpu_decl.model.step_progress import Progress, Quiet
from sgpu_decl.planning.project import Project

if TYPE_CHECKING:
    from sgpu_decl.config.env import Env
    from sgpu_decl.content.manifest import Manifest
    from sgpu_decl.environments.captured.capture import Captured
    from sgpu_decl.environments.declared.lock import Lock
    from sgpu_decl.environments.interpreters import LocalPython

Findings = tuple[Diagnostic, ...]
Lookup = tuple[DesiredEnvironment | None, Findings]


@dataclass(frozen=True, slots=True, kw_only=True)
class FromLock:
    """A lock and the Python to build it with. Relative paths of the lock start from `folder`."""

    lock: "Lock"
    python: "LocalPython"
    folder: Path


Recipe: TypeAlias = "Captured | FromLock"


class DeclaredEnvironments:
    """Environments as they would be made now. Each is resolved or captured once, however many runs
    declare it.

    `recipes` maps the digest of an environment to what makes it. With `for_apply`, files that have
    to be read go into the store in the same pass.
    """

    def __init__(
        self,
        project: Project,
        progress: Progress | None = None,
        *,
        recorded: Mapping[Address, Resource] = MappingProxyType({}),
        for_apply: bool = False,
    ) -> None:
        self._project = project
        self._progress = progress or Quiet()
        self._recorded = recorded
        self._for_apply = for_apply
        self._lookups: dict[tuple[Address, Spec], Lookup] = {}
        self._addresses: dict[Address, Spec] = {}
        self.recipes: dict[str, Recipe] = {}

    def manifest(self, digest: str) -> "Manifest | None":
        """The manifest of a captured environment; `None` for one that is built from a lock."""
        recipe = self.recipes.get(digest)
        return None if recipe is None or isinstance(recipe, FromLock) else recipe.manifest

    def look(
        self,
        run: Address,
        env: "Env",
        *,
        backend: str,
        owner: str,
        folder: Path,
        places: Mapping[str, Place],
        interpreter: Interpreter,
        limit: int,
    ) -> Lookup:
        """Return the environment that a run declares, or `None` where something is wrong with it.

        Args:
            run: the cells of a matrix share an environment unless they declare different ones.
            env: the block of the run; at least one of its `origins` is set.
            folder: paths in the block are relative to it.
            places: where the fields of the run were written.
            interpreter: the Python that the environment is for.
            limit: the largest size of a snapshot, in bytes.
        """
        declared = Spec.of(_declared(env))
        name = env.use or run.name
        where = Address(Kind.ENVIRONMENT, name)
        if self._addresses.setdefault(where, declared) != declared:
            if not run.key:
                return None, (_same_name(name, run),)
            where = Address(Kind.ENVIRONMENT, name, run.key)
        key = (where, declared)
        if key not in self._lookups:
            request = _Request(where, env, backend, owner, folder, interpreter, limit)
            self._lookups[key] = self._find(request, places)
        return self._lookups[key]

    def _find(self, request: "_Request", places: Mapping[str, Place]) -> Lookup:
        folder = self._project.checkout_folder(request.folder)
        python = self._project.pythons().find(request.env.python, folder)
        if isinstance(python, NoPython):
            return None, (python.diagnostic(places.get("env.python")),)
        if request.env.snapshot:
            return self._snapshot(request, python)
        return self._lock(request, python, places)

    def _snapshot(self, request: "_Request", python: "LocalPython") -> Lookup:
        from sgpu_decl.environments.captured.capture import capture
        from sgpu_decl.environments.captured.size_report import over_limit

        store = self._project.environments
        stored = frozenset(store.object_names())  # before this capture adds its files
        captured, findings = (
            store.capture(python.executable, self._progress, program=python.program)
            if self._for_apply
            else capture(python.executable, program=python.program, progress=self._progress)
        )
        if captured is None or has_errors(findings):
            return None, findings
        manifest = captured.manifest
        too_large = over_limit(manifest, request.limit)
        if too_large is not None:
            return None, (*findings, too_large)
        self.recipes[captured.digest] = captured
        return request.environment(
            captured.digest,
            PackageList.of(Package(name, version) for name, version in manifest.packages),
            size=manifest.size,
            missing=sum(file.size for file in manifest.files if file.key not in stored),
        ), findings

    def _lock(
        self, request: "_Request", python: "LocalPython", places: Mapping[str, Place]
    ) -> Lookup:
        from sgpu_decl.environments.declared.environment_build import find_build
        from sgpu_decl.environments.declared.resolution import ResolveRequest, resolve
        from sgpu_decl.environments.declared.resolution_cache import ResolutionCache

        checkout = self._project.checkout_folder(self._project.root)
        resolve_request = ResolveRequest(
            block=request.env,
            python=python._replace(executable=python.program),
            folder=request.folder,
            environ=os.environ,
            places=places,
            guarded=checkout if self._project.guarded else None,
            project=Path(
                os.path.realpath(repository_top(self._project.root) or self._project.root)
            ),
        )
        recorded = self._recorded.get(request.where)
        lock, findings = resolve(
            resolve_request,
            ResolutionCache(self._project.environments.objects.parent / "resolutions"),
            self._progress,
            previous=_previous(recorded),
        )
        if lock is None or has_errors(findings):
            return None, findings
        self.recipes[lock.digest] = FromLock(lock=lock, python=python, folder=request.folder)
        manifest = find_build(lock, self._project.environments)
        return request.environment(
            lock.digest,
            PackageList.of(lock.packages),
            size=manifest.size if manifest else None,
            missing=0 if manifest else None,
            lock=lock.to_json(),
        ), findings


@dataclass(frozen=True, slots=True)
class _Request:
    """What a run asks for as its environment."""

    where: Address
    env: "Env"
    backend: str
    owner: str
    folder: Path
    interpreter: Interpreter
    limit: int

    def environment(
        self,
        digest: str,
        packages: PackageList,
        *,
        size: int | None,
        missing: int | None,
        lock: Json = None,
    ) -> DesiredEnvironment:
        resolved = {"digest": digest, "packages": packages.digest, "lock": lock}
        return DesiredEnvironment(
            address=self.where,
            backend=self.backend,
            owner=self.owner,
            digest=digest,
            spec=Spec.of({**_declared(self.env), **resolved}),
            packages=packages,
            bytes=size,
            bytes_to_stage=missing,
        )


def _previous(recorded: Resource | None) -> "Lock | None":
    """The lock that was applied last; `None` if there was none, or if another version of sgpu wrote
    it."""
    from sgpu_decl.environments.declared.lock import Lock

    lock = recorded.spec.fields.get("lock") if recorded else None
    try:
        return Lock.from_json(cast("Mapping[str, Any]", lock)) if lock else None
    except ValueError:
        return None


def _same_name(name: str, run: Address) -> Diagnostic:
    return Diagnostic(
        code="two_environments",
        summary=f"`{run}` declares an environment, and another one is called `{name}` already",
        hint=f"rename one of them, or share it: `env: {name}`",
    )


def _declared(env: "Env") -> dict[str, Json]:
    return {name: getattr(env, name) for name in (*env.origins, "python")}
