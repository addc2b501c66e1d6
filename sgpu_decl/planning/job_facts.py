"""The jobs of a file: what each should be, and what it is now where it is kept."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from typing import TYPE_CHECKING

from sgpu_decl.config.backend import read_backend
from sgpu_decl.config.loaded import Loaded, LoadedJob
from sgpu_decl.diagnostics.diagnostic import Diagnostic, has_errors
from sgpu_decl.diagnostics.place import Place
from sgpu_decl.errors import BackendError
from sgpu_decl.frozen_dataclass import dataclass
from sgpu_decl.model.address import Address, Kind
from sgpu_decl.model.backend_kinds import job_platform, job_rules, kind_named
from sgpu_decl.model.desired import DesiredRun
from sgpu_decl.model.job import KIND, ONE, RUN, TASKS, DesiredJob, ObservedJob, handle_of
from sgpu_decl.model.jsonable import NO_FIELDS, Json, Spec
from sgpu_decl.model.state import Resource
from sgpu_decl.model.target import Mode
from sgpu_decl.planner.jobs.launched_run import launches_in, run_part
from sgpu_decl.planner.plan_checks import place_of
from sgpu_decl.planning.job_spec import applied_in, applied_job, job_backend_for, requests_in

if TYPE_CHECKING:
    from sgpu_decl.backends.job_backend import (
        JobBackend,
        JobDescriber,
        JobDescription,
        ListedJob,
    )
    from sgpu_decl.config.backend import BackendOptions
    from sgpu_decl.planning.job_spec import JobBackends


@dataclass(frozen=True, slots=True, kw_only=True)
class DeclaredJobs:
    """The jobs of one file. `backends` are those of its runs, by name of the run. `runs` are the
    runs that jobs launch, with the facts about their code and environments; `files` are those of
    the repository, by the job and the task, as if they were runs."""

    jobs: tuple[LoadedJob, ...] = ()
    mode: Mode = Mode.PRODUCTION
    backends: "Mapping[str, BackendOptions]" = field(default_factory=dict)
    runs: Mapping[str, DesiredRun] = field(default_factory=dict)
    files: Mapping[Address, DesiredRun] = field(default_factory=dict)
    owner: str = ""

    @classmethod
    def of(
        cls,
        loaded: Loaded,
        owner: str,
        desired: Sequence[DesiredRun] = (),
        files: Mapping[Address, DesiredRun] | None = None,
    ) -> "DeclaredJobs":
        """The jobs of the file `owner`, a path relative to the project; `desired` are its runs."""
        if not loaded.jobs:
            return cls()
        return cls(
            jobs=loaded.jobs,
            mode=loaded.mode,
            backends={run.address.name: run.config.backend for run in loaded.runs},
            runs={run.address.name: run for run in desired if run.jobs},
            files=files or {},
            owner=owner,
        )

    @property
    def addresses(self) -> frozenset[Address]:
        return frozenset(job.address for job in self.jobs)

    def backend_of(self, job: LoadedJob) -> "BackendOptions":
        """Where a job is kept: where it says, else with its run, or on the one platform that keeps
        notebooks.

        Raises:
            BackendError: several do.
        """
        if job.config.backend is not None:
            return job.config.backend
        for run in job.config.launched_runs:
            if run in self.backends:
                return self.backends[run]
        return read_backend(job_platform().name)


def desire(
    declared: DeclaredJobs,
    job_backends: "Callable[[BackendOptions], JobDescriber]",
    is_planned: Callable[[Address], bool],
    lineage: str,
    recorded: Mapping[Address, Resource],
) -> "tuple[DesiredJob, ...]":
    """What each job should be. A job for which `is_planned` is false gets its address and little
    else.

    Args:
        recorded: what was applied. Of that stays what depends on the user who plans.

    Raises:
        BackendError: the backend does not say which user applies the plan.
    """
    return tuple(
        _desired(declared, job, job_backends, is_planned, lineage, recorded.get(job.address))
        for job in declared.jobs
    )


def observe_jobs(
    declared: DeclaredJobs,
    desired: "Sequence[DesiredJob]",
    recorded: Mapping[Address, Resource],
    job_backends: "JobBackends",
    is_planned: Callable[[Address], bool],
    lineage: str,
) -> "dict[Address, ObservedJob]":
    """Look at each job that can be planned, where it is kept.

    Raises:
        BackendError: a backend does not answer.
    """
    looked_at = [
        (one, recorded.get(one.address), job_backends(declared.backend_of(job)))
        for job, one in zip(declared.jobs, desired, strict=True)
        if is_planned(job.address) and not has_errors(one.findings)
    ]
    new: dict[JobBackend, list[str]] = {}
    for one, resource, backend in looked_at:
        if handle_of(resource) is None:
            new.setdefault(backend, []).append(one.title)
    namesakes = {backend: backend.namesakes(titles) for backend, titles in new.items()}
    return {
        one.address: _observed(one, resource, backend, lineage, namesakes.get(backend, {}))
        for one, resource, backend in looked_at
    }


def managers(jobs: Iterable[Resource], job_backends: "JobBackends") -> dict[Address, str]:
    """Who else manages recorded jobs, in words, by their addresses. A job whose backend does not
    answer has none: apply looks again before it deletes one."""
    found = {}
    for job in jobs:
        handle = handle_of(job)
        if handle is None:
            continue
        try:
            document = job_backend_for(job.spec, handle, job_backends, job.owner).read(handle.id)
        except BackendError:
            continue
        manager = job_rules(job.backend).manager(document) if document is not None else None
        if manager is not None:
            found[job.address] = manager
    return found


def _observed(
    job: "DesiredJob",
    resource: Resource | None,
    backend: "JobBackend",
    lineage: str,
    namesakes: "Mapping[str, Sequence[ListedJob]]",
) -> "ObservedJob":
    handle = handle_of(resource)
    if resource is None or handle is None:
        others = {
            item.id: job.rules.manager(item.settings) for item in namesakes.get(job.title, ())
        }
        return ObservedJob(workspace=backend.workspace, namesakes=others)
    if handle.workspace != backend.workspace:
        return ObservedJob(workspace=backend.workspace)
    try:
        document = backend.read(handle.id)
    except BackendError as error:
        if error.code != "permission_denied":
            raise
        return ObservedJob(workspace=backend.workspace, document=resource.spec, hidden=str(error))
    if document is None:
        return ObservedJob(workspace=backend.workspace)
    return ObservedJob(
        workspace=backend.workspace,
        document=Spec.of(document),
        staged=backend.staged(applied_job(resource, lineage)),
    )


def _desired(
    declared: DeclaredJobs,
    job: LoadedJob,
    job_backends: "Callable[[BackendOptions], JobDescriber]",
    is_planned: Callable[[Address], bool],
    lineage: str,
    resource: Resource | None,
) -> "DesiredJob":
    backend, config = declared.backend_of(job), job.config
    bare = DesiredJob(
        address=job.address,
        backend=str(backend.kind),
        owner=declared.owner,
        spec=NO_FIELDS,
        title=config.name or job.address.name,
        prevent_destroy=config.lifecycle.prevent_destroy,
    )
    if not is_planned(job.address):
        return bare
    rules_of = kind_named(backend.kind).jobs
    if rules_of is None:
        return replace(bare, findings=(_keeps_none(job, backend),))
    launches = _launches(declared, job)
    ours: dict[str, Json] = {}
    if block := backend.model_dump(mode="json", exclude_defaults=True):
        ours["backend"] = block
    if lifecycle := config.lifecycle.model_dump(mode="json", exclude_defaults=True):
        ours["lifecycle"] = lifecycle
    if config.notify is not None:
        ours["notify"] = True

    def described(launches: Mapping[str, DesiredRun]) -> tuple["JobDescription", Spec]:
        parts = _parts(job, launches)
        requests = requests_in(
            Spec.of({**ours, **parts}),
            job.address,
            backend=bare.backend,
            owner=bare.owner,
            lineage=lineage,
        )
        there = job_backends(backend)
        applied = applied_in(there, resource, lineage)
        description = there.describe(config, job.address.name, declared.mode, requests, applied)
        return description, Spec.of({**_with_parts(description.document, parts), **ours})

    try:
        description, spec = described(launches)
        kept = tuple(described(one)[1] for one in _with_earlier_code(launches, resource))
        found = (
            replace(one, place=place_of(job.places, ".".join(one.path)) or job.place, path=())
            for one in job_backends(backend).findings(config)
        )
        findings = (*_runs_elsewhere(job, launches, backend), *found)
    except BackendError as error:
        if error.field is None:
            raise
        return replace(bare, findings=(_mistake(job, error, error.field),))
    return replace(
        bare,
        spec=spec,
        kept=kept,
        title=description.title,
        launches=launches,
        findings=findings,
        rules=rules_of(),
        places=_Places(job, description.origins, launches),
    )


def _launches(declared: DeclaredJobs, job: LoadedJob) -> dict[str, DesiredRun]:
    """What a job launches of the project, by the task."""
    config = job.config
    if config.run is not None:
        return {ONE: declared.runs[config.run]}
    launches = {}
    for task, declared_task in config.tasks.items():
        if declared_task.run is not None:
            launches[task] = declared.runs[declared_task.run]
        elif (file := declared.files.get(replace(job.address, key=task))) is not None:
            launches[task] = file
    return launches


def _parts(job: LoadedJob, launches: Mapping[str, DesiredRun]) -> dict[str, Json]:
    """What is ours in the spec of a job: of one run, or in each of its tasks."""
    if ONE in launches:
        return run_part(launches[ONE])
    tasks: dict[str, Json] = {}
    for key, task in job.config.tasks.items():
        part: dict[str, Json] = {KIND: task.kind}
        launched = launches.get(key)
        if launched is not None:
            part |= run_part(launched)
        if launched is not None and task.run is None:
            part |= launched.spec.fields
        tasks[key] = part
    return {TASKS: tasks} if tasks else {}


def _with_parts(document: Mapping[str, Json], parts: Mapping[str, Json]) -> dict[str, Json]:
    """The document of a job with what is ours."""
    tasks, ours = document.get(TASKS), parts.get(TASKS)
    if not isinstance(tasks, Mapping) or not isinstance(ours, Mapping):
        return {**document, **parts}
    return {**document, TASKS: {key: {**tasks[key], **ours[key]} for key in tasks}}  # type: ignore[dict-item]  # of mappings


def _with_earlier_code(
    launches: Mapping[str, DesiredRun], resource: Resource | None
) -> Iterator[Mapping[str, DesiredRun]]:
    """The launches with code that was staged earlier and differs in nothing that counts: of one
    run, with each such code; of several tasks, with the code that each has."""
    one = launches.get(ONE)
    if one is not None and one.code is not None:
        for code_digest, counted in one.code.same:
            yield {ONE: _with_code(one, code_digest, counted)}
    if one is not None or resource is None:
        return
    staged = launches_in(resource.spec)
    kept = dict(launches)
    for task, run in launches.items():
        for code_digest, counted in run.code.same if run.code is not None else ():
            if task in staged and staged[task].code_digest == code_digest:
                kept[task] = _with_code(run, code_digest, counted)
    if kept != launches:
        yield kept


def _with_code(run: DesiredRun, code_digest: str, counted: str | None) -> DesiredRun:
    code = run.code
    return replace(run, code=code and replace(code, digest=code_digest, counted=counted))


def _keeps_none(job: "LoadedJob", backend: "BackendOptions") -> Diagnostic:
    return Diagnostic(
        code="jobs_unsupported",
        summary=f"the backend `{backend.kind}` keeps no jobs",
        place=job.places.get("backend", job.place),
        hint="declare the job in the target that has one: "
        f"`targets: {{NAME: {{jobs: {{{job.address.name}: …}}}}}}`; or leave it out with "
        f"`--exclude {job.address}`. `sgpu dev workspace` runs jobs on this machine",
    )


def _runs_elsewhere(
    job: LoadedJob, launches: Mapping[str, DesiredRun], backend: "BackendOptions"
) -> Iterator[Diagnostic]:
    """A job launches its runs where it is kept: those that are planned for another backend were
    checked against that."""
    for task, run in launches.items():
        if run.address.kind is Kind.RUN and run.backend != backend.kind:
            path = RUN if task == ONE else f"{TASKS}.{task}.{RUN}"
            yield Diagnostic(
                code="run_refused",
                summary=f"`{run.address}` has the backend `{run.backend}`, and the job that "
                f"launches it `{backend.kind}`",
                place=job.places.get(path, job.place),
                hint=f"give both the same `backend` in this target, or leave out `{run.address}`",
            )


def _mistake(job: LoadedJob, error: BackendError, field: str) -> Diagnostic:
    """A refusal of the backend, at the field that it is about: of a task, `tasks.NAME.FIELD`."""
    above, _, name = field.rpartition(".")
    task = f"{above}." if above.startswith(f"{TASKS}.") and above.count(".") == 1 else ""
    own = job.places.get(f"{task}{name}") or job.places.get(f"{task}notebook.{name}")
    run = job.config.tasks[above.partition(".")[2]].run if task else job.config.run
    if run is None or own is not None:
        place = own or job.places.get(task.removesuffix(".")) or job.place
        return Diagnostic(code=error.code, summary=error.message, place=place, hint=error.hint)
    return Diagnostic(
        code="run_refused",
        summary=f"`run.{run}` cannot be launched there: {error.message}",
        place=job.places.get(f"{task}run", job.place),
        hint=error.hint,
    )


class _Places(Mapping[str, Place]):
    """The place in the YAML that led to a setting of a job. Every path has one: a default has the
    place where the job is named."""

    def __init__(
        self, job: LoadedJob, origins: Mapping[str, str], launches: Mapping[str, DesiredRun]
    ) -> None:
        self._job = job
        self._origins = origins
        self._launches = launches

    def __getitem__(self, path: str) -> Place:
        above, of_run, field = path.partition(f"{RUN}.")
        task = above.removeprefix(f"{TASKS}.").removesuffix(".")
        if of_run and above in ("", f"{TASKS}.{task}.") and task in self._launches:
            places = self._launches[task].places
            return place_of(places, field) or self._written(f"{above}{RUN}")
        above = path
        while above:
            if above in self._origins:
                return self._written(self._origins[above] + path[len(above) :])
            above = above.rpartition(".")[0]
        return self._job.place

    def __iter__(self) -> Iterator[str]:
        return iter(self._origins)

    def __len__(self) -> int:
        return len(self._origins)

    def _written(self, path: str) -> Place:
        return place_of(self._job.places, path) or self._job.place
