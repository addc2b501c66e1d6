"""Facts before planning: what the YAML says, the digest of the code, what the backend has.

Everything here reads and nothing writes, but for caches.
"""

from collections.abc import Callable, Hashable, Mapping
from dataclasses import field
from typing import TYPE_CHECKING

from sgpu_decl.backends.base import Survey
from sgpu_decl.backends.kinds import is_remote
from sgpu_decl.diagnostics.diagnostic import Diagnostic, in_order
from sgpu_decl.environments.interpreters import has_package
from sgpu_decl.facts.check_keys import check_key
from sgpu_decl.facts.code_facts import CodeReader
from sgpu_decl.facts.environment_checks import EnvironmentChecks
from sgpu_decl.facts.environment_facts import DeclaredEnvironments, Recipe
from sgpu_decl.facts.finding_places import from_here, locator
from sgpu_decl.facts.job_facts import DeclaredJobs
from sgpu_decl.facts.location import absolute
from sgpu_decl.facts.opened_project import OpenedProject
from sgpu_decl.facts.ownership import Owners
from sgpu_decl.frozen_dataclass import dataclass
from sgpu_decl.model.address import Address
from sgpu_decl.model.desired import Desired, Interpreter, Placement
from sgpu_decl.model.environment import PackageList
from sgpu_decl.model.ray_cluster import RayCluster
from sgpu_decl.model.state import State
from sgpu_decl.model.step_progress import Progress
from sgpu_decl.planning.unsupported_fields import not_yet
from sgpu_decl.staging.snapshot import Snapshot

if TYPE_CHECKING:
    from sgpu_decl.config.loaded import Loaded, LoadedRun
    from sgpu_decl.config.run import RunConfig
    from sgpu_decl.staging.modules import ModuleFolder

__all__ = ["Gathered", "gather"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Gathered:
    """What a file asks for. `whole_project` is false for a run file; `config_digest` is that of the
    file; `snapshots` maps a code digest to the files behind it, for whoever pins them: some lie in
    `copies`, which go when nobody holds them any more. `recipes` maps the digest of an environment
    to what it takes to make it."""

    desired: tuple[Desired, ...] = ()
    jobs: DeclaredJobs = field(default_factory=DeclaredJobs)
    findings: tuple[Diagnostic, ...] = ()
    snapshots: Mapping[str, Snapshot] = field(default_factory=dict)
    whole_project: bool = True
    config_digest: str = ""
    recipes: Mapping[str, Recipe] = field(default_factory=dict)
    copies: "ModuleFolder | None" = None


def gather(
    project: OpenedProject,
    loaded: "Loaded",
    state: State,
    *,
    path: tuple[str, ...] | None = None,
    progress: Progress | None = None,
    for_apply: bool = False,
) -> Gathered:
    """Turn every run of a file into what is desired, with the digests of its code and environment.

    Cells of a matrix share one snapshot and one look at the entrypoint.

    Args:
        path: the run is a call of a function in memory, and these are the folders that the modules
            of its user are imported from. They are its code where ranks run elsewhere; here they
            are where they are.
        progress: is told how far reading an environment has come.
        for_apply: what has to be read of an environment goes into the store in the same pass.
    """
    equipment = DeclaredEnvironments(
        project, progress, recorded=state.resources, for_apply=for_apply
    )
    gathering = _Gathering(project, state, equipment, called=path)
    gathering.findings.extend(not_yet(name, place) for name, place in loaded.unsupported)
    launched: dict[str | None, list[Address]] = {}
    for job in loaded.jobs:
        launched.setdefault(job.config.run, []).append(job.address)
    desired = tuple(
        gathering.desire(run, tuple(launched.get(run.address.name, ()))) for run in loaded.runs
    )
    gathering.coding.save()
    return Gathered(
        desired=desired,
        jobs=DeclaredJobs.of(loaded, project.opened.owner or "", desired),
        findings=in_order(
            (*gathering.findings, *gathering.coding.findings, *gathering.furnishing.findings)
        ),
        snapshots=gathering.coding.by_digest,
        recipes=equipment.recipes,
        copies=gathering.coding.copies,
        whole_project=loaded.kind == "project",
        config_digest=loaded.config_digest,
    )


class _Gathering:
    def __init__(
        self,
        project: OpenedProject,
        state: State,
        equipment: DeclaredEnvironments,
        *,
        called: tuple[str, ...] | None,
    ) -> None:
        opened = project.opened
        assert opened.file is not None and opened.owner is not None  # noqa: S101, PT018  read_file refused already
        self._called = called
        self._shown = opened.shown
        self._state = state
        self._survey = project.survey
        self._surveys: dict[str, Survey | None] = {}
        self._interpreters: dict[tuple[object, ...], Interpreter | None] = {}
        self._placements: dict[Hashable, Placement | None] = {}
        self._clusters: dict[Hashable, RayCluster | None] = {}
        # What a call says of paths stands in the project's file.
        self._folder = opened.root if called is not None else absolute(opened.file).parent
        self._owner = opened.owner
        self._owners = Owners(opened.root)
        self.coding = CodeReader(opened.root, self._folder, opened.shown, project.store)
        self.furnishing = EnvironmentChecks(equipment, self._folder, self._owner)
        self.findings: list[Diagnostic] = []

    def desire(self, run: "LoadedRun", jobs: tuple[Address, ...]) -> Desired:
        """One run; `jobs` are what launches it in the place of `apply`."""
        config = run.config
        if (backend := self._backend(config)) is not None:
            backend.expect(config)
        taken = self._code(run)
        interpreter = self._interpreter(config)
        key = check_key(run)
        if key not in self._placements:
            self._placements[key] = self._placement(config)
            self._look(run, taken, interpreter)
        environment = None
        if config.env.origins:
            environment = self.furnishing.environment(run, interpreter)
        said = self.furnishing.examine(
            run, taken, environment, interpreter, importable=_having(interpreter)
        )
        root = self.coding.root(config.code)
        self.findings.extend(from_here(root, item, self._shown) for item in said)
        installed = environment or interpreter
        if key not in self._clusters:
            self._clusters[key] = self._ray(run, installed.packages if installed else None)
        if config.env.origins or not config.entrypoint:
            interpreter = None
        return Desired(
            address=run.address,
            backend=str(config.backend.kind),
            owner=self._owner,
            spec=run.spec,
            until=str(config.until),
            on_active=str(config.on_active),
            prevent_destroy=config.lifecycle.prevent_destroy,
            ignore_changes=tuple(config.lifecycle.ignore_changes),
            code=self.coding.facts(taken, self._code_before(run.address, jobs)) if taken else None,
            environment=environment,
            interpreter=interpreter,
            placement=self._placements[key],
            ray=self._clusters[key],
            jobs=jobs,
            places=run.places,
            findings=self._dispute(run.address),
        )

    def _code(self, run: "LoadedRun") -> Snapshot | None:
        if self._called is None:
            return self.coding.take(run)
        remote = is_remote(run.config.backend.kind)
        return self.coding.take_modules(self._called) if remote else None

    def _code_before(self, run: Address, jobs: tuple[Address, ...]) -> str | None:
        """The digest of the code that was launched last, or that a job launches."""
        known = self._state.resources
        if jobs:
            from sgpu_decl.planning.jobs.launched_run import launched_by

            launches = (launched_by(known[job].spec) for job in jobs if job in known)
            return next((item.code_digest if item else None for item in launches), None)
        last = known[run].last if run in known else None
        return last.inputs.code_digest if last else None

    def _dispute(self, address: Address) -> tuple[Diagnostic, ...]:
        resource = self._state.resources.get(address)
        if resource is None or resource.gone or resource.owner == self._owner:
            return ()
        return self._owners.dispute(address, resource.owner, self._owner)

    def _placement(self, config: "RunConfig") -> Placement | None:
        backend = self._backend(config)
        if backend is None:
            return None
        placement, findings = backend.placement(config)
        self.findings.extend(findings)
        return placement

    def _ray(self, run: "LoadedRun", installed: PackageList | None) -> RayCluster | None:
        """The Ray cluster that a run asks for."""
        config, backend = run.config, self._backend(run.config)
        if config.ray is None:
            return None
        from sgpu_decl.facts.ray_facts import ray_cluster, ray_findings, ray_packages

        shape = backend.nodes(config) if backend is not None else None
        packages = ray_packages(config, installed)
        cluster = ray_cluster(config.ray, shape, packages)
        place = locator(run.places)
        self.findings += ray_findings(config.ray, place, shape=shape, packages=packages)
        return cluster

    def _backend(self, config: "RunConfig") -> Survey | None:
        """What the backend of a run can be asked; `None` where planning will refuse it."""
        kind = str(config.backend.kind)
        if kind not in self._surveys:
            self._surveys[kind] = self._survey(kind)
        return self._surveys[kind]

    def _interpreter(self, config: "RunConfig") -> Interpreter | None:
        """The Python of this machine that ranks use, or that a declared environment is made for."""
        env, backend = config.env, self._backend(config)
        if backend is None:
            return None
        key = (config.backend.kind, env.python, env.origins)
        if key not in self._interpreters:
            self._interpreters[key] = backend.interpreter(env, self._folder)
        return self._interpreters[key]

    def _look(
        self, run: "LoadedRun", taken: Snapshot | None, interpreter: Interpreter | None
    ) -> None:
        """Check the entrypoint, the arguments, and what the backend says."""
        config = run.config
        if self._called is None:
            self.coding.check_entrypoint(run, taken, _having(interpreter))
            if taken is not None:
                self.coding.check_files(run, taken)
        backend = self._backend(config)
        if backend is None:
            return
        self.findings.extend(
            backend.check(config, run.places, self._folder, called=self._called is not None)
        )
        if taken is not None and self._called is None:
            root = self.coding.root(config.code)
            findings = list(backend.check_code(config, run.places, taken))
            refused = {item.code for item in findings}  # the backend knows more of these
            findings += [item for item in _of_ray(config, taken) if item.code not in refused]
            self.findings.extend(from_here(root, item, self._shown) for item in findings)


def _of_ray(config: "RunConfig", code: Snapshot) -> tuple[Diagnostic, ...]:
    """What the code of a run does that does not go with its Ray cluster."""
    if config.ray is None or config.entrypoint is None:
        return ()
    from sgpu_decl.staging.ray_calls import ray_calls
    from sgpu_decl.staging.sources import sources

    return ray_calls(sources(code.root, config.entrypoint))


def _having(interpreter: Interpreter | None) -> Callable[[str], bool]:
    """Whether an interpreter may find a package: any, where nobody knows the interpreter."""
    return lambda top: interpreter is None or has_package(interpreter, top)
