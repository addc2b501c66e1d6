"""The jobs of a project as they are in a bundle: what is behind both the loader and `render`."""

import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, cast

from sgpu_decl.applying.environment_staging import make_environment
from sgpu_decl.bundles.bundle_folder import FOLDER, BundleFolder
from sgpu_decl.diagnostics.diagnostic import Diagnostic, Severity, has_errors, in_order
from sgpu_decl.errors import NotFound
from sgpu_decl.frozen_dataclass import dataclass
from sgpu_decl.model.address import Address
from sgpu_decl.model.backend_kinds import capabilities_of, only_kind
from sgpu_decl.model.job import DesiredJob
from sgpu_decl.model.jsonable import Json
from sgpu_decl.model.state import State
from sgpu_decl.model.step_progress import Quiet
from sgpu_decl.planner.plan_checks import place_of, run_checks
from sgpu_decl.planning.job_facts import desire
from sgpu_decl.planning.job_spec import requests_in
from sgpu_decl.planning.plan_facts import gather
from sgpu_decl.planning.project import Project

if TYPE_CHECKING:
    from sgpu_decl.backends.base import Survey
    from sgpu_decl.backends.bundle_backend import BundleBackend
    from sgpu_decl.backends.launch_request import LaunchRequest
    from sgpu_decl.config.backend import BackendOptions
    from sgpu_decl.config.loaded import Loaded, LoadedJob, LoadedRun
    from sgpu_decl.diagnostics.place import Place
    from sgpu_decl.planning.plan_facts import PlanFacts

JOBS = "jobs"
"""What the jobs of the file are called in the index of the folder."""


class BundledProject(Project):
    """A project in the folder of a bundle. What a plan would ask a workspace is not asked."""

    @cached_property
    def bundle(self) -> "BundleBackend":
        """The backend that the jobs of bundles are on."""
        kind = only_kind("has bundles", lambda kind: kind.bundle)
        assert kind.bundle is not None  # noqa: S101  as asked for
        return cast("BundleBackend", kind.bundle(self._context, self.root / FOLDER))

    def survey(self, kind: str) -> "Survey | None":
        return self.bundle.survey if kind == self.bundle_kind else super().survey(kind)

    @property
    def bundle_kind(self) -> str:
        """The kind of backend that the jobs of bundles are on."""
        return only_kind("has bundles", lambda kind: kind.bundle).name


@dataclass(frozen=True, slots=True, kw_only=True)
class BundledJob:
    """One job. `resource` is what a bundle has below `resources.jobs.NAME`. `places` are those of
    its settings, by paths in that (`tasks[0].max_retries`), and `place` that of the job."""

    name: str
    resource: Mapping[str, Json]
    place: "Place"
    places: "Mapping[str, Place]"


@dataclass(frozen=True, slots=True, kw_only=True)
class BundledJobs:
    """Jobs, and what was found about them. There are none if there are errors."""

    jobs: tuple[BundledJob, ...] = ()
    findings: tuple[Diagnostic, ...] = ()


def bundled_jobs(
    project: BundledProject,
    jobs_of: "Callable[[Loaded], tuple[LoadedJob, ...]]" = lambda loaded: loaded.jobs,
    *,
    name: str = JOBS,
    keep: int,
    write: bool = True,
) -> BundledJobs:
    """The jobs of a project as they are in a bundle, with what they launch in its folder.

    Args:
        jobs_of: gives the jobs, of what the file says.
        name: what the folder remembers these launches by: those of the last `keep` calls with that
            name stay in it.
        write: whether anything is written.

    Raises:
        SgpuError: the file holds errors (`InvalidInput`), or the folder cannot be written.
    """
    if project.file is None:
        raise NotFound(
            f"there is no `sgpu.yml` in `{project.root}`, the folder of the bundle",
            hint="put it beside `databricks.yml`",
        )
    folder = BundleFolder(project.root / FOLDER)
    folder.refuse_foreign_files()
    validated = project.read()
    jobs = jobs_of(validated.loaded)
    launched = {run for job in jobs for run in job.config.launched_runs}
    runs = tuple(run for run in validated.loaded.runs if run.address.name in launched)
    elsewhere = tuple(_elsewhere(project, runs))
    if elsewhere:
        return BundledJobs(findings=in_order((*validated.findings, *elsewhere)))
    loaded = replace(validated.loaded, runs=runs, jobs=jobs)
    lineage = _lineage(loaded.project_name, project.target)
    state = State(lineage=lineage, serial=0, resources={})
    facts = gather(project, loaded, state, for_apply=write)
    backend, block = project.bundle, facts.jobs.backend_of
    blocks = {job.address: block(job) for job in jobs}
    desired = desire(facts.jobs, lambda _: backend, lambda _: True, lineage, {})
    findings = in_order(
        (
            *validated.findings,
            *(one for one in facts.findings if one.severity is not Severity.INFO),
            *run_checks(facts.desired, capabilities_of(project.bundle_kind)),
            *(finding for job in desired for finding in job.findings),
            *_without_meaning(jobs, blocks),
        )
    )
    if has_errors(findings):
        return BundledJobs(findings=findings)
    requests = [request for job in desired for request in _requests(job, lineage)]
    if write and (requests or folder.is_there):
        _pin(project, facts, requests)
        folder.make()
        folder.keep(
            f"{project.target or ''}/{name}",
            [path for request in requests for path in backend.stage(request)],
            most=keep,
        )
    return BundledJobs(
        jobs=tuple(_bundled(job, one, backend) for job, one in zip(jobs, desired, strict=True)),
        findings=findings,
    )


def _lineage(name: str | None, target: str | None) -> str:
    """In the place of that of a state, which there is none of: the same on each machine."""
    return str(uuid.uuid5(uuid.NAMESPACE_URL, f"sgpu:bundle:{name or ''}:{target or ''}"))


def _requests(job: DesiredJob, lineage: str) -> "list[LaunchRequest]":
    requests = requests_in(
        job.spec, job.address, backend=job.backend, owner=job.owner, lineage=lineage
    )
    return list(requests.values())


def _pin(project: BundledProject, facts: "PlanFacts", requests: "list[LaunchRequest]") -> None:
    """Have the code and the environments of launches in the stores of this machine."""
    for digest in dict.fromkeys(one.inputs.code_digest for one in requests):
        if digest is not None and not project.store.touch(digest, Quiet()):
            project.store.put(facts.snapshots[digest], Quiet())
    for digest in dict.fromkeys(one.inputs.environment_digest for one in requests):
        if digest is not None and not project.environments.touch(digest, Quiet()):
            make_environment(project.environments, facts.recipes[digest], Quiet())


def _elsewhere(project: BundledProject, runs: "tuple[LoadedRun, ...]") -> Iterator[Diagnostic]:
    """Runs of other backends."""
    for run in runs:
        kind = str(run.config.backend.kind)
        if kind != project.bundle_kind:
            place = place_of(run.places, "backend.kind") or place_of(run.places, "name")
            yield Diagnostic(
                code="bundle_backend",
                address=str(run.address),
                summary=f"`{run.address}` has the backend `{kind}`, and jobs of a bundle launch "
                f"runs on `{project.bundle_kind}` only",
                place=place or next(iter(run.places.values()), None),
                hint=f"write `backend: {project.bundle_kind}` in the run, or in the target",
            )


def _without_meaning(
    jobs: "tuple[LoadedJob, ...]", blocks: "Mapping[Address, BackendOptions]"
) -> Iterator[Diagnostic]:
    """Fields that a bundle decides itself."""
    for job in jobs:
        unused = [f"backend.{name}" for name in blocks[job.address].model_fields_set - {"kind"}]
        if job.config.lifecycle.ignore_changes:
            unused.append("lifecycle.ignore_changes")
        for field in sorted(unused):
            yield Diagnostic(
                code="bundle_field",
                severity=Severity.WARNING,
                address=str(job.address),
                summary=f"`{field}` has no effect in a bundle",
                place=place_of(job.places, field) or job.place,
                hint="set `workspace` in databricks.yml: it says where jobs and files are"
                if field.startswith("backend.")
                else "each deploy of the bundle resets what somebody changed in the workspace",
            )


def _bundled(job: "LoadedJob", desired: DesiredJob, backend: "BundleBackend") -> BundledJob:
    resource = backend.resource(job.config, desired.spec.fields)
    places = {path: desired.places[known] for known, path in _paths(desired.spec.fields, resource)}
    return BundledJob(name=job.address.name, resource=resource, place=job.place, places=places)


def _paths(document: Mapping[str, Json], resource: Mapping[str, Json]) -> Iterator[tuple[str, str]]:
    """The paths of settings, in the document of a job and in the resource: there, what is a mapping
    by names is a list in the order of the names."""
    for name, value in resource.items():
        members = document.get(name)
        yield name, name
        if isinstance(value, list) and isinstance(members, Mapping):
            for at, (member, item) in enumerate(zip(sorted(members), value, strict=True)):
                yield f"{name}.{member}", f"{name}[{at}]"
                for field in item if isinstance(item, Mapping) else ():
                    yield f"{name}.{member}.{field}", f"{name}[{at}].{field}"
        elif isinstance(value, Mapping) and name != "tags":  # whose names may be no part of a path
            yield from ((f"{name}.{field}", f"{name}.{field}") for field in value)
