"""Declared environments: what each would be now, and making those that a plan launches runs in."""

import json
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from sgpu_decl.applying.site import Site
from sgpu_decl.config.env import Env, EnvironmentBlock
from sgpu_decl.diagnostics.diagnostic import Diagnostic, has_errors
from sgpu_decl.environments.progress import Progress, Quiet
from sgpu_decl.errors import StalePlan
from sgpu_decl.model.address import Address, Kind
from sgpu_decl.model.desired import Interpreter
from sgpu_decl.model.environment import DesiredEnvironment, Package, PackageList
from sgpu_decl.model.jsonable import Json, canonical
from sgpu_decl.model.plan import Plan

if TYPE_CHECKING:
    from sgpu_decl.environments.capturing import Captured
    from sgpu_decl.environments.store import EnvironmentStore

__all__ = ["Equipment", "equip", "refer_environments"]

Findings = tuple[Diagnostic, ...]


class Equipment:
    """Environments as they are now, each looked at once however many runs declare it."""

    def __init__(
        self, store: "Callable[[], EnvironmentStore]", progress: Progress | None = None
    ) -> None:
        self._store = store
        self._progress = progress or Quiet()
        self._made: dict[str, tuple[DesiredEnvironment | None, Findings]] = {}
        self._addresses: dict[Address, str] = {}
        self.captured: dict[str, Captured] = {}

    def look(
        self,
        address: Address,
        env: EnvironmentBlock,
        *,
        backend: str,
        owner: str,
        interpreter: Interpreter,
    ) -> tuple[DesiredEnvironment | None, Findings]:
        """Return the environment that a run declares, or `None` where something is wrong with it.

        Args:
            address: the run's; its cells share an environment unless they declare different ones.
            env: with at least one of its `origins`.
            interpreter: the Python that it is for.
        """
        declared = _declared(env, interpreter)
        name = (env.use if isinstance(env, Env) else None) or address.name
        where = Address(Kind.ENVIRONMENT, name)
        if self._addresses.setdefault(where, declared) != declared:
            if not address.key:
                return None, (_same_name(name, address),)
            where = Address(Kind.ENVIRONMENT, name, address.key)
        key = canonical([str(where), declared])
        if key not in self._made:
            self._made[key] = self._snapshot(where, declared, backend, owner, interpreter)
        return self._made[key]

    def _snapshot(
        self, where: Address, declared: str, backend: str, owner: str, interpreter: Interpreter
    ) -> tuple[DesiredEnvironment | None, Findings]:
        from sgpu_decl.environments.capturing import capture

        captured, findings = capture(interpreter.executable, progress=self._progress)
        if captured is None or has_errors(findings):
            return None, findings
        manifest = captured.manifest
        digest = captured.digest
        self.captured[digest] = captured
        packages = PackageList.of(Package(name, version) for name, version in manifest.packages)
        made = DesiredEnvironment(
            address=where,
            backend=backend,
            owner=owner,
            digest=digest,
            spec=_spec(declared, digest, packages, lock=None),
            packages=packages,
            bytes=manifest.size,
            bytes_to_stage=sum(file.size for file in self._store().missing(manifest)),
            findings=findings,
        )
        return made, ()


def equip(
    site: Site, plan: Plan, captured: "Mapping[str, Captured]", progress: Progress | None = None
) -> None:
    """Have every environment that the plan launches runs in where its ranks will look for it.

    What is neither in the store nor among `captured` is made again, as the plan says how.

    Raises:
        StalePlan: what is here now is not what was planned.
        SgpuError: it cannot be stored or built.
    """
    progress = progress or Quiet()
    specs = {
        change.launch.environment_digest: change.launch.spec
        for change in plan.changes
        if change.kind is Kind.ENVIRONMENT and change.launch
    }
    for digest, kind in _launched(plan).items():
        if not site.environments.touch(digest):
            taken = captured.get(digest) or _again(specs.get(digest), progress)
            if taken is None or taken.digest != digest:
                raise StalePlan(
                    "the environment here is not the one that was planned",
                    hint="plan again; `sgpu env diff` shows what differs",
                    code="environment_differs",
                )
            site.environments.put(taken, progress)
        site.backend(kind).equip(digest, progress)


def refer_environments(site: Site) -> None:
    """Tell the shared store which environments this state needs."""
    state = site.state()
    used = {it.last.environment_digest for it in state.resources.values() if it.last}
    used |= {attempt.environment_digest for attempt in state.active}
    site.environments.refer(site.state_dir / "state.db", {it for it in used if it})


def _launched(plan: Plan) -> dict[str, str]:
    """The digests of what runs are launched in, and their backends."""
    return {
        change.launch.environment_digest: change.backend
        for change in plan.changes
        if change.launch and change.launch.token and change.launch.environment_digest
    }


def _again(spec: str | None, progress: Progress) -> "Captured | None":
    from sgpu_decl.environments.capturing import capture

    if spec is None:
        return None
    made: Mapping[str, Json] = json.loads(spec)
    captured, _ = capture(str(made["python"]), progress=progress)
    return captured


def _same_name(name: str, run: Address) -> Diagnostic:
    return Diagnostic(
        code="two_environments",
        summary=f"`{run}` declares an environment, and another one is called `{name}` already",
        hint=f"rename one of them, or share it: `env: {name}`",
    )


def _declared(env: EnvironmentBlock, interpreter: Interpreter) -> str:
    block: dict[str, Json] = {name: getattr(env, name) for name in env.origins}
    return canonical({**block, "python": interpreter.executable})


def _spec(declared: str, digest: str, packages: PackageList, lock: str | None) -> str:
    return canonical(
        {**json.loads(declared), "digest": digest, "packages": packages.digest, "lock": lock}
    )
