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
from sgpu_decl.model.address import Address
from sgpu_decl.model.backend_kinds import job_rules, kind_named, only_kind
from sgpu_decl.model.desired import NO_PLACES, DesiredRun
from sgpu_decl.model.job import RUN, DesiredJob, ObservedJob, handle_of
from sgpu_decl.model.jsonable import NO_FIELDS, Json, Spec
from sgpu_decl.model.state import Resource
from sgpu_decl.model.target import Mode
from sgpu_decl.planner.jobs.launched_run import run_part
from sgpu_decl.planner.plan_checks import place_of
from sgpu_decl.planning.job_spec import applied_in, applied_job, job_backend_for, request_in

if TYPE_CHECKING:
    from sgpu_decl.backends.job_backend import JobBackend, JobDescription
    from sgpu_decl.config.backend import BackendOptions
    from sgpu_decl.planning.job_spec import JobBackends


@dataclass(frozen=True, slots=True, kw_only=True)
class DeclaredJobs:
    """The jobs of one file. `backends` are those of its runs, by name of the run. `runs` are the
    runs that jobs launch, with the facts about their code and environments."""

    jobs: tuple[LoadedJob, ...] = ()
    mode: Mode = Mode.PRODUCTION
    backends: "Mapping[str, BackendOptions]" = field(default_factory=dict)
    runs: Mapping[str, DesiredRun] = field(default_factory=dict)
    owner: str = ""

    @classmethod
    def of(cls, loaded: Loaded, owner: str, desired: Sequence[DesiredRun] = ()) -> "DeclaredJobs":
        """The jobs of the file `owner`, a path relative to the project; `desired` are its runs."""
        if not loaded.jobs:
            return cls()
        return cls(
            jobs=loaded.jobs,
            mode=loaded.mode,
            backends={run.address.name: run.config.backend for run in loaded.runs},
            runs={run.address.name: run for run in desired if run.jobs},
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
        if job.config.run is not None and job.config.run in self.backends:
            return self.backends[job.config.run]

        return read_backend(only_kind("keeps notebooks", lambda kind: kind.jobs).name)


def desire(
    declared: DeclaredJobs,
    job_backends: "JobBackends",
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
    return {
        job.address: _observed(
            desired_job, recorded.get(job.address), job_backends(declared.backend_of(job)), lineage
        )
        for job, desired_job in zip(declared.jobs, desired, strict=True)
        if is_planned(job.address) and not has_errors(desired_job.findings)
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
    job: "DesiredJob", resource: Resource | None, backend: "JobBackend", lineage: str
) -> "ObservedJob":
    handle = handle_of(resource)
    if resource is None or handle is None:
        others = tuple(item.id for item in backend.named(job.title))
        return ObservedJob(workspace=backend.workspace, namesakes=others)
    if handle.workspace != backend.workspace:
        return ObservedJob(workspace=backend.workspace)
    document = backend.read(handle.id)
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
    job_backends: "JobBackends",
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
    run = declared.runs[config.run] if config.run is not None else None
    ours: dict[str, Json] = {"backend": backend.model_dump(mode="json", exclude_defaults=True)}
    if lifecycle := config.lifecycle.model_dump(mode="json", exclude_defaults=True):
        ours["lifecycle"] = lifecycle

    def described(run: DesiredRun | None) -> tuple["JobDescription", Spec]:
        whole = {**ours, **run_part(run)} if run is not None else ours
        request = request_in(
            Spec.of(whole), job.address, backend=bare.backend, owner=bare.owner, lineage=lineage
        )
        there = job_backends(backend)
        applied = applied_in(there, resource, lineage)
        description = there.describe(config, job.address.name, declared.mode, request, applied)
        return description, Spec.of({**description.document, **whole})

    try:
        description, spec = described(run)
        kept = tuple(described(one)[1] for one in _with_earlier_code(run))
        findings = tuple(
            replace(one, place=place_of(job.places, ".".join(one.path)) or job.place, path=())
            for one in job_backends(backend).findings(config)
        )
    except BackendError as error:
        if error.field is None:
            raise
        return replace(bare, findings=(_mistake(job, run, error, error.field),))
    return replace(
        bare,
        spec=spec,
        kept=kept,
        title=description.title,
        run=run,
        findings=findings,
        rules=rules_of(),
        places=_Places(job, description.origins, run.places if run is not None else NO_PLACES),
    )


def _with_earlier_code(run: DesiredRun | None) -> Iterator[DesiredRun]:
    """A run with each code that was staged earlier and differs in nothing that counts."""
    if run is None or run.code is None:
        return
    for code_digest, counted in run.code.same:
        yield replace(run, code=replace(run.code, digest=code_digest, counted=counted))


def _keeps_none(job: "LoadedJob", backend: "BackendOptions") -> Diagnostic:
    return Diagnostic(
        code="jobs_unsupported",
        summary=f"the backend `{backend.kind}` keeps no jobs",
        place=job.places.get("backend", job.place),
        hint="declare the job in the target that has one: "
        f"`targets: {{NAME: {{jobs: {{{job.address.name}: …}}}}}}`; or leave it out with "
        f"`--exclude {job.address}`",
    )


def _mistake(job: LoadedJob, run: DesiredRun | None, error: BackendError, field: str) -> Diagnostic:
    name = field.rpartition(".")[2]
    own = job.places.get(name) or job.places.get(f"notebook.{name}")
    if run is None or own is not None:
        place = own or job.place
        return Diagnostic(code=error.code, summary=error.message, place=place, hint=error.hint)
    return Diagnostic(
        code="run_refused",
        summary=f"`{run.address}` cannot be launched there: {error.message}",
        place=job.places.get("run", job.place),
        hint=error.hint,
    )


class _Places(Mapping[str, Place]):
    """The place in the YAML that led to a setting of a job. Every path has one: a default has the
    place where the job is named."""

    def __init__(
        self, job: LoadedJob, origins: Mapping[str, str], run: Mapping[str, Place]
    ) -> None:
        self._job = job
        self._origins = origins
        self._run = run

    def __getitem__(self, path: str) -> Place:
        if path.startswith(f"{RUN}."):
            return place_of(self._run, path.removeprefix(f"{RUN}.")) or self._written("run")
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
