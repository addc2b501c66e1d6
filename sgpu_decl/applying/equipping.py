"""Declared environments: what each would be now, and making those that a plan launches runs in."""

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from sgpu_decl.applying.jobs.launching import launching_in
from sgpu_decl.applying.recording import launching_of
from sgpu_decl.applying.site import Site
from sgpu_decl.backends.base import Launching
from sgpu_decl.config.env import Env
from sgpu_decl.diagnostics.diagnostic import Diagnostic, has_errors
from sgpu_decl.diagnostics.place import Place
from sgpu_decl.environments.progress import Progress, Quiet
from sgpu_decl.errors import BackendError, StalePlan
from sgpu_decl.model.address import Address, Kind
from sgpu_decl.model.desired import Interpreter
from sgpu_decl.model.environment import DesiredEnvironment, Package, PackageList
from sgpu_decl.model.jsonable import Json, canonical
from sgpu_decl.model.plan import Change, Plan
from sgpu_decl.model.state import Resource
from sgpu_decl.planning.jobs.running import staged_by_jobs

if TYPE_CHECKING:
    from sgpu_decl.agent.environment.manifest import Manifest
    from sgpu_decl.environments.captured.capturing import Captured
    from sgpu_decl.environments.declared.lock import Lock
    from sgpu_decl.environments.declared.pythons import LocalPython
    from sgpu_decl.environments.stored.store import EnvironmentStore

__all__ = [
    "Equipment",
    "FromLock",
    "collect_environments",
    "equip",
    "keep",
    "refer_environments",
]

Findings = tuple[Diagnostic, ...]
Looked = tuple[DesiredEnvironment | None, Findings]


@dataclass(frozen=True, slots=True, kw_only=True)
class FromLock:
    """What a lock is built with: `folder` is what its relative paths start from."""

    lock: "Lock"
    python: "LocalPython"
    folder: Path


class Equipment:
    """Environments as they are now, each looked at once however many runs declare it.

    `recipes` maps the digest of each to what it takes to make it. `take_in` says that what has to
    be read goes into the store in the same pass.
    """

    def __init__(
        self,
        store: "Callable[[], EnvironmentStore]",
        progress: Progress | None = None,
        *,
        recorded: Mapping[Address, Resource] = MappingProxyType({}),
        take_in: bool = False,
    ) -> None:
        self._open = store
        self._progress = progress or Quiet()
        self._recorded = recorded
        self._take_in = take_in
        self._looked: dict[str, Looked] = {}
        self._addresses: dict[Address, str] = {}
        self.recipes: dict[str, Captured | FromLock] = {}

    @cached_property
    def _store(self) -> "EnvironmentStore":
        return self._open()

    def manifest(self, digest: str) -> "Manifest | None":
        """That of a captured environment."""
        recipe = self.recipes.get(digest)
        return None if recipe is None or isinstance(recipe, FromLock) else recipe.manifest

    def look(
        self,
        run: Address,
        env: Env,
        *,
        backend: str,
        owner: str,
        folder: Path,
        places: Mapping[str, Place],
        interpreter: Interpreter,
        limit: int,
    ) -> Looked:
        """Return the environment that a run declares, or `None` where something is wrong with it.

        Args:
            run: its cells share an environment unless they declare different ones.
            env: with at least one of its `origins`.
            folder: what paths in it are relative to.
            places: where the fields of the run were written.
            interpreter: the Python that it is for.
            limit: bytes that a snapshot may hold.
        """
        declared = _declared(env)
        name = env.use or run.name
        where = Address(Kind.ENVIRONMENT, name)
        if self._addresses.setdefault(where, declared) != declared:
            if not run.key:
                return None, (_same_name(name, run),)
            where = Address(Kind.ENVIRONMENT, name, run.key)
        key = canonical([str(where), declared])
        if key not in self._looked:
            made = _Looking(where, env, backend, owner, folder, interpreter, limit)
            self._looked[key] = self._look(made, places)
        return self._looked[key]

    def _look(self, wanted: "_Looking", places: Mapping[str, Place]) -> Looked:
        python = _python(wanted.env.python, wanted.folder)
        if python is None:  # what is there under its name is none that starts
            from sgpu_decl.environments.captured.interpreter import ask

            said = ask(wanted.interpreter.executable)
            why = said if isinstance(said, Diagnostic) else _no_python(wanted.env.python)
            return None, (replace(why, place=places.get("env.python")),)
        if wanted.env.snapshot:
            return self._snapshot(wanted, python.executable)
        return self._lock(wanted, python, places)

    def _snapshot(self, wanted: "_Looking", python: str) -> Looked:
        from sgpu_decl.environments.captured.capturing import capture
        from sgpu_decl.environments.captured.sizing import over_limit

        there = frozenset(self._store.keys())  # what is taken in now was not there before
        captured, findings = (
            self._store.capture(python, self._progress)
            if self._take_in
            else capture(python, progress=self._progress)
        )
        if captured is None or has_errors(findings):
            return None, findings
        manifest = captured.manifest
        too_large = over_limit(manifest, wanted.limit)
        if too_large is not None:
            return None, (*findings, too_large)
        self.recipes[captured.digest] = captured
        return wanted.environment(
            captured.digest,
            PackageList.of(Package(name, version) for name, version in manifest.packages),
            size=manifest.size,
            missing=sum(file.size for file in manifest.files if file.key not in there),
        ), findings

    def _lock(
        self, wanted: "_Looking", python: "LocalPython", places: Mapping[str, Place]
    ) -> Looked:
        from sgpu_decl.environments.declared.building import built
        from sgpu_decl.environments.declared.resolutions import Resolutions
        from sgpu_decl.environments.declared.resolving import Asking, resolve

        asking = Asking(
            block=wanted.env,
            python=python,
            folder=wanted.folder,
            environ=os.environ,
            places=places,
        )
        recorded = self._recorded.get(wanted.where)
        lock, findings = resolve(
            asking,
            Resolutions(self._store.objects.parent / "resolutions"),
            self._progress,
            previous=_previous(recorded),
        )
        if lock is None or has_errors(findings):
            return None, findings
        self.recipes[lock.digest] = FromLock(lock=lock, python=python, folder=wanted.folder)
        manifest = built(lock, self._store)
        return wanted.environment(
            lock.digest,
            PackageList.of(lock.packages),
            size=manifest.size if manifest else None,
            missing=0 if manifest else None,
            lock=lock.to_json(),
        ), findings


@dataclass(frozen=True, slots=True)
class _Looking:
    """One environment that is being looked at."""

    where: Address
    env: Env
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
        made = {"digest": digest, "packages": packages.digest, "lock": lock}
        return DesiredEnvironment(
            address=self.where,
            backend=self.backend,
            owner=self.owner,
            digest=digest,
            spec=canonical({**json.loads(_declared(self.env)), **made}),
            packages=packages,
            bytes=size,
            bytes_to_stage=missing,
        )


def equip(
    site: Site,
    plan: Plan,
    recipes: "Mapping[str, Captured | FromLock]",
    progress: Progress | None = None,
) -> Findings:
    """Have what the plan's launches share where their ranks will look for it: every environment,
    and what else the backends bring. The code is in the store already.

    What is neither in the store nor among `recipes` is made again, as the plan says how.

    Returns:
        What was noticed while building.

    Raises:
        StalePlan: what is here now is not what was planned.
        SgpuError: it cannot be stored, built or brought there.
    """
    progress = progress or Quiet()
    found: list[Diagnostic] = []
    planned = {
        change.launch.environment_digest: change
        for change in plan.changes
        if change.kind is Kind.ENVIRONMENT and change.launch
    }
    for digest in _launched(plan):
        if not site.environments.touch(digest):
            recipe = recipes.get(digest) or _again(site, planned.get(digest), progress)
            if recipe is None or _digest(recipe) != digest:
                raise StalePlan(
                    "the environment here is not the one that was planned",
                    hint="plan again; `sgpu env diff` shows what differs",
                    code="environment_differs",
                )
            found += _make(site.environments, recipe, progress)
    by_backend: dict[str, list[Launching]] = {}
    for change in plan.changes:
        launching = _launching(plan, change)
        if launching is not None:
            by_backend.setdefault(change.backend, []).append(launching)
    for kind, launchings in by_backend.items():
        site.backend(kind).equip(launchings, progress)
    return tuple(found)


def keep(
    site: Site,
    plan: Plan,
    recipes: "Mapping[str, Captured | FromLock]",
    owner: Path,
    progress: Progress | None = None,
) -> None:
    """Put what a saved plan needs into the store: environments that only this machine has as they
    are now. What a lock says can be had again."""
    launched = _launched(plan)
    for digest in launched:
        recipe = recipes.get(digest)
        if recipe is not None and not isinstance(recipe, FromLock):
            site.environments.put(recipe, progress or Quiet())
    if launched:
        site.environments.refer(owner, launched)


def refer_environments(site: Site) -> None:
    """Tell the shared store which environments this state needs."""
    state = site.state()
    used = {it.last.environment_digest for it in state.resources.values() if it.last}
    used |= {attempt.environment_digest for attempt in state.active}
    used |= staged_by_jobs(state.resources.values(), "environment")
    found = {it for it in used if it}
    if found or site.environments.objects.is_dir():
        site.environments.refer(site.state_dir / "state.db", found)


def collect_environments(site: Site) -> int:
    """Delete the environments that no project refers to; returns the bytes that were freed."""
    if not site.environments.objects.is_dir():
        return 0
    refer_environments(site)
    return site.environments.collect()


def _launched(plan: Plan) -> set[str]:
    """The digests of what runs are launched in."""
    return {
        change.launch.environment_digest
        for change in plan.changes
        if change.launch and change.stages and change.launch.environment_digest
    }


def _launching(plan: Plan, change: Change) -> Launching | None:
    if change.launches:
        return launching_of(plan, change)
    if not change.stages or change.launch is None:
        return None
    return launching_in(change.launch.spec, change.address, change.launch.owner, plan.lineage)


def _make(store: "EnvironmentStore", recipe: "Captured | FromLock", progress: Progress) -> Findings:
    if isinstance(recipe, FromLock):
        from sgpu_decl.environments.declared.building import build

        return build(
            recipe.lock,
            recipe.python,
            store,
            progress,
            folder=recipe.folder,
            environ=os.environ,
        ).warnings
    store.put(recipe, progress)
    return ()


def _again(site: Site, planned: Change | None, progress: Progress) -> "Captured | FromLock | None":
    """From what a plan says alone: of another process, or another machine."""
    if planned is None or planned.launch is None:
        return None
    spec: Mapping[str, Json] = json.loads(planned.launch.spec)
    folder = (site.root / planned.launch.owner).parent
    declared = spec.get("python")
    python = _python(declared if isinstance(declared, str) else None, folder)
    if python is None:
        missing = _no_python(declared)
        raise BackendError(missing.summary, hint=missing.hint, code="python_missing")
    lock = spec.get("lock")
    if isinstance(lock, Mapping):
        from sgpu_decl.environments.declared.lock import Lock

        return FromLock(lock=Lock.from_json(lock), python=python, folder=folder)
    from sgpu_decl.environments.captured.capturing import capture

    captured, _ = capture(python.executable, progress=progress)
    return captured


def _previous(recorded: Resource | None) -> "Lock | None":
    """The lock that was applied last; none where it was none, or one of another version of sgpu."""
    from sgpu_decl.environments.declared.lock import Lock

    before = json.loads(recorded.spec).get("lock") if recorded else None
    try:
        return Lock.from_json(before) if before else None
    except ValueError:
        return None


def _python(declared: str | None, folder: Path) -> "LocalPython | None":
    import platformdirs

    from sgpu_decl.environments.declared.pythons import find_python

    memory = Path(platformdirs.user_cache_path("sgpu")) / "pythons.json"
    return find_python(declared, folder=folder, environ=os.environ, memory=memory)


def _no_python(declared: object) -> Diagnostic:
    return Diagnostic(
        code="python_missing",
        summary=f"this machine has no Python `{declared}`",
        hint="install it on the PATH, or name an interpreter by its path",
    )


def _digest(recipe: "Captured | FromLock") -> str:
    return recipe.lock.digest if isinstance(recipe, FromLock) else recipe.digest


def _same_name(name: str, run: Address) -> Diagnostic:
    return Diagnostic(
        code="two_environments",
        summary=f"`{run}` declares an environment, and another one is called `{name}` already",
        hint=f"rename one of them, or share it: `env: {name}`",
    )


def _declared(env: Env) -> str:
    return canonical({name: getattr(env, name) for name in (*env.origins, "python")})
