"""What the planner is told: the runs of the YAML, the digests of their code and environments, what
the backends offer. Everything here only reads; caches are the exception."""

import os
from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import field, replace
from functools import partial
from typing import TYPE_CHECKING

from sgpu_decl.backends.base import Survey
from sgpu_decl.code.command_programs import scripts_of
from sgpu_decl.code.counted_code import CountedCode
from sgpu_decl.code.mlflow_calls import values_of_ranks
from sgpu_decl.code.snapshot import Snapshot
from sgpu_decl.code.sources import Source, function_source
from sgpu_decl.diagnostics.diagnostic import Diagnostic, in_order
from sgpu_decl.environments.interpreters import has_package
from sgpu_decl.frozen_dataclass import dataclass
from sgpu_decl.model.address import Address, cell_positions
from sgpu_decl.model.backend_kinds import is_remote
from sgpu_decl.model.desired import CodeFacts, DesiredRun, Interpreter, Placement, Rename
from sgpu_decl.model.environment import DesiredEnvironment, PackageList
from sgpu_decl.model.job import ONE
from sgpu_decl.model.jsonable import Spec
from sgpu_decl.model.launch import LaunchInputs
from sgpu_decl.model.plan import PlanPlatform
from sgpu_decl.model.ray_size import RaySize
from sgpu_decl.model.state import Attempt, State
from sgpu_decl.model.step_progress import Progress
from sgpu_decl.planner.fingerprint import fingerprint
from sgpu_decl.planner.jobs.launched_run import launches_in
from sgpu_decl.planner.plan_checks import place_of
from sgpu_decl.planning.code_facts import CodeReader
from sgpu_decl.planning.command_text import CommandTexts
from sgpu_decl.planning.environment_checks import EnvironmentChecks
from sgpu_decl.planning.environment_facts import DeclaredEnvironments, Recipe
from sgpu_decl.planning.finding_places import check_key, from_here
from sgpu_decl.planning.job_facts import DeclaredJobs
from sgpu_decl.planning.location import absolute
from sgpu_decl.planning.ownership import Owners
from sgpu_decl.planning.platform_values import with_platform_values
from sgpu_decl.planning.project import Project
from sgpu_decl.planning.project_file import EntrypointTexts, as_recorded

if TYPE_CHECKING:
    from sgpu_decl.code.modules import ModuleFolder
    from sgpu_decl.config.loaded import Loaded, LoadedJob, LoadedRun
    from sgpu_decl.config.run import RunConfig
    from sgpu_decl.config.run_blocks import Code


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanFacts:
    """Attributes:
    desired: the runs of the file, each with the digests of its code and its environment.
    found_for: the runs that each finding is about, where it is not about the whole file. A matrix
        counts as one.
    snapshots: the files behind each code digest. Some of them are in `copies`, a temporary folder
        that is deleted with the last reference to it.
    counted: for each code digest, what of it counts, with the name of the first such run.
    whole_project: false for a run file.
    config_digest: the digest of the file.
    removed: what the project lets go.
    left_out: what the target leaves out.
    values_left_out: the files of values that only this command keeps out of the code, relative to
        the project.
    renames: the addresses that runs and jobs had before, as the file says it.
    recipes: what makes each environment, by its digest.
    platforms: where planned runs go that do not go to this machine.
    """

    desired: tuple[DesiredRun, ...] = ()
    jobs: DeclaredJobs = field(default_factory=DeclaredJobs)
    findings: tuple[Diagnostic, ...] = ()
    found_for: Mapping[Diagnostic, tuple[Address, ...]] = field(default_factory=dict)
    snapshots: Mapping[str, Snapshot] = field(default_factory=dict)
    counted: Mapping[str, tuple[tuple[str, CountedCode], ...]] = field(default_factory=dict)
    whole_project: bool = True
    config_digest: str = ""
    removed: frozenset[Address] = frozenset()
    left_out: frozenset[Address] = frozenset()
    values_left_out: tuple[str, ...] = ()
    renames: tuple[Rename, ...] = ()
    keep_warm: float = 0.0
    recipes: Mapping[str, Recipe] = field(default_factory=dict)
    copies: "ModuleFolder | None" = None
    project_name: str | None = None
    platforms: tuple[PlanPlatform, ...] = ()


def gather(
    project: Project,
    loaded: "Loaded",
    state: State,
    *,
    progress: Progress | None = None,
    for_apply: bool = False,
    renames: tuple[Rename, ...] = (),
    planned: Callable[[Address], bool] = lambda _: True,
) -> PlanFacts:
    """Gather the facts about every run of a file. Findings are those of what is planned: a machine
    or a platform that another run would need refuses nothing.

    The cells of a matrix share one snapshot and one check of the entrypoint.

    Args:
        state: as it will be once what the file renames is moved.
        progress: is told how much of the code and of an environment has been read.
        for_apply: files of an environment that have to be read go into the store in the same pass.
        planned: whether a run or a job is.
    """
    loaded, of_platforms = with_platform_values(project, loaded)
    environments = DeclaredEnvironments(
        project, progress, recorded=state.resources, for_apply=for_apply
    )
    reader = _FactReader(project, state, environments, progress, included=loaded.included)
    jobs_by_run: dict[str, list[Address]] = {}
    for job in loaded.jobs:
        for name in job.config.launched_runs:
            jobs_by_run.setdefault(name, []).append(job.address)
    positions = cell_positions(run.address for run in loaded.runs)
    by_address: dict[Address, DesiredRun] = {}
    others = []
    for run, cell in zip(loaded.runs, positions, strict=True):
        jobs = tuple(jobs_by_run.get(run.address.name, ()))
        if planned(run.address) or any(map(planned, jobs)):
            by_address.setdefault(run.address, reader.desired_run(run, cell, jobs))
        else:
            others.append((run, cell, jobs))
    declared = DeclaredJobs.of(loaded, project.owner or "")
    files = {
        address: one
        for job in loaded.jobs
        if planned(job.address)
        for address, one in reader.task_files(job, str(declared.backend_of(job).kind))
    }
    # What runs have in common is looked at once, for the first.
    findings = (*of_platforms, *reader.all_findings)
    found_for = {finding: tuple(runs) for finding, runs in reader.found_for.items()}
    for run, cell, jobs in others:
        by_address.setdefault(run.address, reader.desired_run(run, cell, jobs, asked=False))
    desired = tuple(by_address[run.address] for run in loaded.runs)
    reader.code_reader.save()
    return PlanFacts(
        desired=desired,
        jobs=DeclaredJobs.of(loaded, project.owner or "", desired, files),
        findings=findings,
        found_for=found_for,
        snapshots=reader.code_reader.by_digest,
        counted={
            digest: tuple(known.values()) for digest, known in reader.code_reader.counted.items()
        },
        recipes=environments.recipes,
        copies=reader.code_reader.copies,
        whole_project=loaded.kind == "project",
        config_digest=loaded.config_digest,
        removed=frozenset(loaded.removed),
        left_out=frozenset(loaded.left_out),
        values_left_out=tuple(
            sorted(
                os.path.relpath(file, project.root) for file in reader.code_reader.values_left_out
            )
        ),
        renames=renames,
        keep_warm=loaded.keep_warm,
        project_name=loaded.project_name,
        platforms=tuple(dict.fromkeys(filter(None, reader.accounts.values()))),
    )


class _FactReader:
    def __init__(
        self,
        project: Project,
        state: State,
        environments: DeclaredEnvironments,
        progress: Progress | None,
        *,
        included: tuple[str, ...],
    ) -> None:
        assert project.file is not None and project.owner is not None  # noqa: S101, PT018  read_file refused already
        self._call_path = project.call_path
        self._shown = project.shown
        self._state = state
        self._active: dict[Address, tuple[Attempt, ...]] = {}
        for attempt in state.active:
            known = self._active.get(attempt.ref.address, ())
            self._active[attempt.ref.address] = (*known, attempt)
        self._survey = project.survey
        self._surveys: dict[str, Survey | None] = {}
        self._interpreters: dict[tuple[object, ...], Interpreter | None] = {}
        self._placements: dict[Hashable, Placement | None] = {}
        self._sites: dict[Hashable, str] = {}
        self.accounts: dict[Hashable, PlanPlatform | None] = {}
        self._clusters: dict[Hashable, RaySize | None] = {}
        # A call takes its paths from the file of the project.
        self._folder = (
            project.root if project.call_path is not None else absolute(project.file).parent
        )
        self._checkout_folder = project.checkout_folder(self._folder)
        self._owner = project.owner
        files = (absolute(project.file), *(self._folder / path for path in included))
        self._owners = Owners(project.root, now=files)
        self.code_reader = CodeReader(
            project.root,
            self._folder,
            project.shown,
            project.store,
            progress,
            owners=files,
            values=tuple(map(absolute, project.location.variable_files)),
        )
        self.environment_checks = EnvironmentChecks(environments, self._folder, self._owner)
        self._command_texts = CommandTexts()
        self._texts = EntrypointTexts(self._folder)
        self.findings: list[Diagnostic] = []
        self.found_for: dict[Diagnostic, dict[Address, None]] = {}
        self._found_in: dict[Code, list[Diagnostic]] = {}

    @property
    def all_findings(self) -> tuple[Diagnostic, ...]:
        """What was found about the runs up to now."""
        return in_order(
            (*self.findings, *self.code_reader.findings, *self.environment_checks.findings)
        )

    def desired_run(
        self,
        run: "LoadedRun",
        cell: str | None,
        jobs: tuple[Address, ...],
        *,
        asked: bool = True,
    ) -> DesiredRun:
        """The facts about one run. If `jobs` launch it, `apply` does not. Unless it is `asked`, its
        backend says nothing of it: it is not planned."""
        lists = (self.findings, self.code_reader.findings, self.environment_checks.findings)
        known = [len(findings) for findings in lists]
        desired = self._desired_run(run, cell, jobs, asked=asked)
        found = [finding for one, past in zip(lists, known, strict=True) for finding in one[past:]]
        found += self._found_in.get(run.config.code, ())
        for finding in found:
            self.found_for.setdefault(finding, {})[replace(run.address, key="")] = None
        return desired

    def _desired_run(
        self, run: "LoadedRun", cell: str | None, jobs: tuple[Address, ...], *, asked: bool
    ) -> DesiredRun:
        config, origins = run.config, run.config.env.origins
        if (backend := self._backend(config)) is not None and asked:
            backend.expect(config)
        code = self._code(run)
        interpreter = self._interpreter(config, origins)
        key = check_key(run)
        if key not in self._sites:  # of every run: another one may come after it
            self._sites[key] = backend.site(config) if backend is not None else ""
        if asked and key not in self._placements:
            self._placements[key] = self._placement(config)
            self._check(run, code, interpreter)
            if backend is not None:
                self.accounts[key] = backend.account(config)
        environment = None
        if origins:
            environment = self.environment_checks.environment(run, interpreter)
        findings = self.environment_checks.examine(
            run,
            code,
            environment,
            interpreter,
            importable=_importable_by(interpreter),
            executed=self.code_reader.executed,
        )
        if findings:
            root = self.code_reader.root(config.code)
            self.findings += [from_here(root, item, self._shown) for item in findings]
        if asked and key not in self._clusters:
            # An environment that cannot be made is reported; no other one stands in for it.
            installed = environment if origins else interpreter
            self._clusters[key] = self._ray(run, installed.packages if installed else None)
        if origins or not config.entrypoint:
            interpreter = None
        facts = self._code_facts(code, run, jobs)
        return DesiredRun(
            address=run.address,
            backend=str(config.backend.kind),
            owner=self._owner,
            spec=self._spec(run, code, facts, environment),
            cell=cell,
            until=str(config.until),
            on_active=str(config.on_active),
            prevent_destroy=config.lifecycle.prevent_destroy,
            ignore_changes=tuple(config.lifecycle.ignore_changes),
            code=facts,
            environment=environment,
            interpreter=interpreter,
            placement=self._placements.get(key),
            resumes=config.resume is not None,
            ray=self._clusters.get(key),
            jobs=jobs,
            after=config.after,
            site=self._sites.get(key, ""),
            places=run.places,
            findings=self._dispute(run.address),
        )

    def task_files(self, job: "LoadedJob", backend: str) -> Iterator[tuple[Address, DesiredRun]]:
        """The files of the repository that are tasks of a job, as if they were runs. `backend` is
        the kind that keeps the job."""
        if not job.config.tasks:
            return
        from sgpu_decl.planning.task_files import (
            file_findings,
            file_of,
            notebook_spec,
            script_run,
            script_spec,
        )

        for key, task in job.config.tasks.items():
            if file_of(task) is None:
                continue
            self.findings += file_findings(job, key, task, self._folder)
            address = replace(job.address, key=key)
            code = None
            spec = notebook_spec(task, self._folder) if task.python is None else script_spec(task)
            if task.python is not None:
                run = script_run(job, key, task, backend)
                code = self._code_facts(self._code(run), run, (job.address,))
            yield (
                address,
                DesiredRun(
                    address=address,
                    backend=backend,
                    owner=self._owner,
                    spec=spec,
                    until="always",
                    on_active="error",
                    code=code,
                    places=job.places,
                ),
            )

    def _spec(
        self,
        run: "LoadedRun",
        code: Snapshot | None,
        facts: CodeFacts | None,
        environment: DesiredEnvironment | None,
    ) -> Spec:
        """The spec of a run. What is computed is what the last attempt computed if it is so as an
        earlier version read the file, which took text for numbers."""
        resource = self._state.resources.get(run.address)
        last = resource.last.inputs if resource is not None and resource.last else None
        entrypoint = run.config.entrypoint
        if last is None or last.spec == run.spec or entrypoint is None or code is None:
            return run.spec
        texts = self._texts(entrypoint, run.config.code.root or "")
        spec = as_recorded(run.spec, last.spec, texts) if texts else run.spec
        if spec == run.spec:
            return spec
        digest = environment.digest if environment is not None else None
        same = any(one == last.code_digest for one, _ in facts.same) if facts is not None else False
        known = last.code_digest if same else code.digest
        return spec if fingerprint(spec, known, digest) == last.fingerprint else run.spec

    def _code(self, run: "LoadedRun") -> Snapshot | None:
        if self._call_path is None:
            known = len(self.code_reader.findings)
            code = self.code_reader.code_of(run)
            self._found_in.setdefault(run.config.code, self.code_reader.findings[known:])
            return code
        remote = is_remote(run.config.backend.kind)
        return self.code_reader.imported_modules(self._call_path) if remote else None

    def _code_facts(
        self, code: Snapshot | None, run: "LoadedRun", jobs: tuple[Address, ...]
    ) -> CodeFacts | None:
        if code is None:
            return None
        earlier = tuple(self._earlier(run.address, jobs))
        return self.code_reader.facts(run, code, earlier, called=self._call_path is not None)

    def _earlier(self, run: Address, jobs: tuple[Address, ...]) -> Iterator[LaunchInputs]:
        """What the last attempt and the active ones were launched with, or what jobs launch."""
        resources = self._state.resources
        if jobs:
            launched = [launches_in(resources[job].spec) for job in jobs if job in resources]
            for by_task in launched:
                for task, inputs in by_task.items():
                    name = inputs.spec.fields.get("name", run.name if task == run.key else None)
                    if task == ONE or name == run.name:
                        yield inputs
        elif run in resources:
            last = resources[run].last
            attempts = ((last,) if last is not None else ()) + self._active.get(run, ())
            yield from (attempt.inputs for attempt in attempts)

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

    def _ray(self, run: "LoadedRun", installed: PackageList | None) -> RaySize | None:
        """The Ray cluster that a run asks for."""
        config, backend = run.config, self._backend(run.config)
        if config.ray is None:
            return None
        from sgpu_decl.planning.ray_facts import ray_facts, ray_packages

        shape = backend.nodes(config) if backend is not None else None
        packages = ray_packages(config, installed, self._folder)
        place = partial(place_of, run.places)
        cluster, findings = ray_facts(config, config.ray, place, shape=shape, packages=packages)
        self.findings += findings
        return cluster

    def _backend(self, config: "RunConfig") -> Survey | None:
        """The survey of the run's backend; `None` for a backend that planning will refuse."""
        kind = str(config.backend.kind)
        if kind not in self._surveys:
            self._surveys[kind] = self._survey(kind)
        return self._surveys[kind]

    def _interpreter(self, config: "RunConfig", origins: tuple[str, ...]) -> Interpreter | None:
        """The Python of this machine that ranks use, or that a declared environment is made for."""
        env, backend = config.env, self._backend(config)
        if backend is None:
            return None
        key = (config.backend.kind, env.python, origins)
        if key not in self._interpreters:
            self._interpreters[key] = backend.interpreter(env, self._checkout_folder)
        return self._interpreters[key]

    def _check(
        self, run: "LoadedRun", code: Snapshot | None, interpreter: Interpreter | None
    ) -> None:
        """Check the entrypoint, the arguments, and what the backend says."""
        config = run.config
        self.findings += self._command_texts.check(config, run.places)
        if self._call_path is None:
            self.code_reader.check_entrypoint(run, code, _importable_by(interpreter))
            if code is not None:
                self.code_reader.check_files(run, code)
        backend = self._backend(config)
        if backend is None:
            return
        self.findings.extend(
            backend.check(
                config, run.places, self._checkout_folder, called=self._call_path is not None
            )
        )
        executed = self._executed(run, code)
        findings = list(backend.check_code(config, run.places, executed))
        if config.ray is not None:
            from sgpu_decl.code.ray_calls import ray_calls

            reported = {item.code for item in findings}  # the backend's finding says more
            findings += [item for item in ray_calls(executed) if item.code not in reported]
        elif config.launch.warm == "auto" and config.gpus > 1 and self._call_path is None:
            from sgpu_decl.backends.preimports import cold_starts

            shape = backend.nodes(config)
            findings += cold_starts(executed, config.gpus // (shape.nodes if shape else 1))
        if config.ray is None and config.mlflow.enabled and config.gpus > 1:
            findings += values_of_ranks(executed)
        if findings and self._call_path is None:
            root = self.code_reader.root(config.code)
            findings = [from_here(root, item, self._shown) for item in findings]
        self.findings += findings

    def _executed(self, run: "LoadedRun", code: Snapshot | None) -> "tuple[Source, ...]":
        """What a run executes; of a function that is called, the function itself."""
        if self._call_path is not None:
            place = run.places.get("entrypoint")
            if place is None or (run.config.ray is None and not is_remote(run.config.backend.kind)):
                return ()  # here, a call has no time for a parser that would find nothing

            source = function_source(place)
            return () if source is None else (source,)
        if code is None:
            return ()
        config = run.config
        started = scripts_of(config.command) if config.entrypoint is None else (config.entrypoint,)
        return self.code_reader.executed(code, started)


def _importable_by(interpreter: Interpreter | None) -> Callable[[str], bool]:
    """A function that says whether the interpreter may find a package. An unknown interpreter may
    find any."""
    return lambda top: interpreter is None or has_package(interpreter, top)
