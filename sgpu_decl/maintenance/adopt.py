"""`sgpu adopt`: records an existing job at an address. It changes the state only; the next apply
replaces the settings of the job by those of the file."""

from dataclasses import replace

from sgpu_decl.config.loaded import LoadedJob
from sgpu_decl.diagnostics.diagnostic import has_errors
from sgpu_decl.diagnostics.nearest_names import nearest
from sgpu_decl.errors import InvalidInput, NotFound, SgpuError
from sgpu_decl.model.address import Address, Kind
from sgpu_decl.model.job import OURS, DesiredJob, JobHandle, handle_of
from sgpu_decl.model.jsonable import Spec, digest
from sgpu_decl.model.state import Resource
from sgpu_decl.planner.fingerprint import token
from sgpu_decl.planner.jobs.ignored_settings import without_defaults
from sgpu_decl.planning.job_facts import DeclaredJobs, desire
from sgpu_decl.planning.project import Project


def adopt(project: Project, declared: DeclaredJobs, text: str, job_id: str) -> Resource:
    """Record the job with that id at an address. A second call changes nothing.

    Args:
        text: the address, or the name, of a job that the file declares.

    Raises:
        NotFound: the file declares no such job, or the workspace has none with that id.
        InvalidInput: the declared job has errors.
        SgpuError: the address has a job, or the job has an address.
    """
    job = _declared(declared, text)
    if not job_id.isdecimal():
        raise SgpuError(
            f"`{job_id}` is no id of a job",
            hint="it is the number at the end of the job's URL",
            code="bad_id",
        )
    (desired,) = desire(
        replace(declared, jobs=(job,)),
        project.job_backend,
        lambda _: True,
        project.state().lineage,
        {},
    )
    if has_errors(desired.findings):
        raise InvalidInput(f"`{desired.address}` cannot be kept", diagnostics=desired.findings)
    backend = project.job_backend(declared.backend_of(job))
    existing = _recorded(project, desired.address, job_id, backend.workspace)
    if existing is not None:
        return existing
    document = backend.read(job_id)
    if document is None:
        raise NotFound(
            f"`{backend.workspace}` has no job {job_id}", hint="look at its list of jobs"
        )
    manager = desired.rules.manager(document)
    if manager is not None:
        raise SgpuError(
            f"the job {job_id} is managed by {manager}: it would put back what an apply changes",
            hint="take the job out of there first (`databricks bundle deployment unbind KEY` "
            "deletes nothing), and remove `deployment` from its settings if they still have it; "
            "or let sgpu make a job of its own",
            code="managed_by_bundle",
        )
    with project.writing("adopt") as writer:
        before = writer.state.resources.get(desired.address)
        number = (before.numbered if before else 0) + 1
        spec = _spec(desired, Spec.of(document))
        mark = token(writer.state.lineage, desired.address, number, digest(spec.text))
        handle = JobHandle(id=job_id, workspace=backend.workspace, token=mark)
        resource = Resource(
            address=desired.address,
            backend=desired.backend,
            owner=desired.owner,
            spec=spec,
            last=None,
            numbered=number,
            remote=str(handle),
        )
        writer.record_resource(resource)
    return resource


def _declared(declared: DeclaredJobs, text: str) -> LoadedJob:
    for job in declared.jobs:
        if text in (str(job.address), job.address.name):
            return job
    names = [str(job.address) for job in declared.jobs]
    near = nearest(text, [*names, *(job.address.name for job in declared.jobs)])
    if near is not None:
        hint = f"did you mean `{near}`?"
    elif names:
        hint = "it declares " + ", ".join(f"`{name}`" for name in names[:5])
    else:
        hint = "declare it under `jobs` as it should be; then adopt the one that exists"
    raise NotFound(f"the file declares no job `{text}`", hint=hint)


def _recorded(project: Project, address: Address, job_id: str, workspace: str) -> Resource | None:
    """The recorded job, if it has this address and id. Raises SgpuError: one of both is taken."""
    for resource in project.state().resources.values():
        if resource.address.kind is not Kind.JOB or (handle := handle_of(resource)) is None:
            continue
        same = (handle.id, handle.workspace) == (job_id, workspace)
        if resource.address == address:
            if same:
                return resource
            raise SgpuError(
                f"`{address}` is the job {handle.id} of `{handle.workspace}` already",
                hint=f"forget that one first, with `sgpu state rm {address}`",
                code="adopt_refused",
            )
        if same:
            raise SgpuError(
                f"the job {job_id} is `{resource.address}` already",
                hint=f"give it the new address with `sgpu state mv {resource.address} {address}`",
                code="adopt_refused",
            )
    return None


def _spec(desired: DesiredJob, document: Spec) -> Spec:
    """The settings of the job, as if they had been applied."""
    spec = desired.spec.fields
    ours = {key: spec[key] for key in OURS if key in spec}
    return Spec.of({**without_defaults(document, desired.rules, desired.spec).fields, **ours})
