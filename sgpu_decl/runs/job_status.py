"""Jobs as they are now, for people and programs. Nothing here writes."""

from collections.abc import Mapping
from typing import Any

from sgpu_decl.errors import BackendError
from sgpu_decl.model.backend_kinds import job_rules
from sgpu_decl.model.job import JobHandle, JobLaunch, JobStart, JobView, recorded_handle
from sgpu_decl.model.state import Resource
from sgpu_decl.planning.job_spec import job_backend_for
from sgpu_decl.planning.project import Project


def describe_job(project: Project, job: Resource) -> JobView:
    """What is recorded of a job, and what is seen where it is kept."""
    handle = recorded_handle(job) if job.remote else None
    document, last, error = _seen(project, job, handle)
    spec: Mapping[str, Any] = job.spec.fields
    rules, settings = job_rules(job.backend), document or spec
    start = rules.start(settings)
    return JobView(
        address=job.address,
        backend=job.backend,
        owner=job.owner,
        title=settings.get("name"),
        state=_state(start, document, error),
        handle=handle,
        start=start,
        spec=spec,
        live=document,
        url=rules.link(handle.workspace, handle.id) if handle else None,
        last=last,
        error=error.message if error else None,
    )


def _state(start: JobStart, document: Mapping[str, Any] | None, error: BackendError | None) -> str:
    """See `JobView`."""
    if error is not None:
        return "unknown"
    if document is None:
        return "missing"
    if start.paused is None:
        return "manual"
    return "paused" if start.paused else "scheduled"


_Seen = tuple[dict[str, Any] | None, JobLaunch | None, BackendError | None]


def _seen(project: Project, job: Resource, handle: JobHandle | None) -> _Seen:
    """The document of a job (`None` if it does not exist) and its newest launch; or why the
    platform cannot be asked."""
    if handle is None:
        return None, None, None
    try:
        backend = job_backend_for(job.spec, handle, project.job_backend, job.owner)
        document = backend.read(handle.id)
        return document, backend.last(handle.id) if document is not None else None, None
    except BackendError as error:
        return None, None, error
