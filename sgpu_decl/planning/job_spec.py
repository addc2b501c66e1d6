"""What the spec of a job holds: its backend, its title, and what its platform launches; and whether
an open intent has created the job."""

from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

from sgpu_decl.backends.job_backend import AppliedJob, JobBackend, JobDescriber
from sgpu_decl.backends.launch_request import LaunchRequest, unknown_config
from sgpu_decl.config.backend import read_backend
from sgpu_decl.errors import BackendError
from sgpu_decl.model.address import Address
from sgpu_decl.model.attempt import AttemptRef
from sgpu_decl.model.job import JobHandle, handle_of
from sgpu_decl.model.jsonable import Spec
from sgpu_decl.model.launch import LaunchRecord
from sgpu_decl.model.state import Intent, Resource
from sgpu_decl.planner.jobs.launched_run import launches_in, mark_of

if TYPE_CHECKING:
    from sgpu_decl.config.backend import BackendOptions


class JobBackends(Protocol):
    """Gives what keeps jobs; see `Project.job_backend`."""

    def __call__(self, block: "BackendOptions", recorded_by: str | None = None) -> JobBackend: ...


def backend_in(spec: Spec) -> "BackendOptions":
    """The `backend` of a job's spec. Raises BackendError: a record has one that nobody can read."""
    try:
        return read_backend(spec.fields.get("backend", {}))
    except ValueError as error:
        raise unknown_config("a job", "sgpu state rm", error) from error


def job_backend_for(
    spec: Spec, handle: JobHandle | None, job_backends: JobBackends, owner: str | None
) -> JobBackend:
    """The backend of a job, known to be where the job is.

    Args:
        owner: the file that declares the job, where the spec is that of a record; None where it is
            what that file says now.

    Raises:
        BackendError: the credentials that are named lead to another workspace now, or only a record
            names the host.
    """
    backend = job_backends(backend_in(spec), owner)
    if handle is not None and backend.workspace != handle.workspace:
        raise BackendError(
            f"the job {handle.id} is kept in `{handle.workspace}`, and the settings here lead to "
            f"`{backend.workspace}`",
            hint="use the profile of that workspace; or forget the job with `state rm` and its "
            "address, which `sgpu state list` shows",
            code="other_workspace",
        )
    return backend


def applied_job(job: Resource, lineage: str) -> AppliedJob:
    """A recorded job as its backend wants it."""
    requests = requests_in(
        job.spec, job.address, backend=job.backend, owner=job.owner, lineage=lineage
    )
    return AppliedJob(spec=job.spec.fields, requests=requests)


def applied_in(backend: JobDescriber, resource: Resource | None, lineage: str) -> AppliedJob | None:
    """The same where the job is kept there; else None."""
    handle = handle_of(resource)
    if resource is None or handle is None or handle.workspace != backend.workspace:
        return None
    return applied_job(resource, lineage)


def made_by(intent: Intent, job_backends: JobBackends) -> Resource | None:
    """The job that an intent made, `None` where it made none.

    Raises:
        BackendError: its backend does not answer.
    """
    resource = intent.job
    if resource is None:
        return None
    backend = job_backend_for(resource.spec, None, job_backends, resource.owner)
    for job in backend.named(str(resource.spec.fields.get("name", ""))):
        if job.token == intent.token:
            handle = JobHandle(id=job.id, workspace=backend.workspace, token=intent.token)
            return replace(resource, remote=str(handle))
    return None


def requests_in(
    spec: Spec, job: Address, *, backend: str, owner: str, lineage: str
) -> dict[str, LaunchRequest]:
    """What the job with that spec launches of the project, by the task: no attempts of ours, so
    they have the number 0.

    Args:
        backend: the kind of backend that keeps the job.
        owner: the file that declares it, relative to the project.
        lineage: that of the state which the job is recorded in.
    """
    return {
        task: LaunchRequest(
            record=LaunchRecord(
                ref=AttemptRef(replace(job, key=task), 0),
                backend=backend,
                token=mark_of(lineage, job, spec, task),
                lineage=lineage,
                owner=owner,
                inputs=inputs,
            )
        )
        for task, inputs in launches_in(spec).items()
    }
