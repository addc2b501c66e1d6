"""Jobs as they are now, for people and programs. Nothing here writes."""

import json
from collections.abc import Mapping
from typing import Any

from sgpu_decl.backends.job_backend import JobLaunch
from sgpu_decl.backends.kinds import kind_named
from sgpu_decl.errors import BackendError
from sgpu_decl.facts.job_spec import job_backend_for
from sgpu_decl.facts.opened_project import OpenedProject
from sgpu_decl.model.job import JobHandle
from sgpu_decl.model.job_rules import JobRules, JobStart
from sgpu_decl.model.jsonable import Json
from sgpu_decl.model.state import Resource
from sgpu_decl.model.times import to_text


def describe_jobs(project: OpenedProject, jobs: list[Resource]) -> list[dict[str, Json]]:
    """One object for each: what is recorded, and what is seen where it is kept."""
    return [_described(job, *_seen(project, job)) for job in jobs]


def show_job(project: OpenedProject, job: Resource) -> dict[str, Json]:
    """One object whole, with the settings that were applied and those that it has."""
    look = _seen(project, job)
    return {
        **_described(job, *look),
        "owner": job.owner,
        "spec": json.loads(job.spec),
        "live": look[0],
    }


def _described(
    job: Resource,
    document: dict[str, Any] | None,
    last: JobLaunch | None,
    error: BackendError | None,
) -> dict[str, Json]:
    handle = JobHandle.parse(job.remote) if job.remote else None
    spec: dict[str, Any] = json.loads(job.spec)
    settings: dict[str, Any] = document or spec
    rules = _rules(job)
    start = rules.start(settings)
    return {
        "address": str(job.address),
        "name": job.address.label,
        "title": settings.get("name"),
        "state": _state(start, document, error),
        "backend": job.backend,
        "id": handle.id if handle else None,
        "workspace": handle.workspace if handle else None,
        "schedule": start.schedule,
        "timezone": start.timezone,
        "trigger": start.trigger,
        "links": {"job": rules.link(handle.workspace, handle.id)} if handle else {},
        "last": _launch(last) if last is not None else None,
        "error": error.message if error else None,
    }


def _rules(job: Resource) -> JobRules:
    """None of a platform, if the backend is not installed any more."""
    try:
        rules_of = kind_named(job.backend).jobs
    except BackendError:
        return JobRules()
    return rules_of() if rules_of is not None else JobRules()


def _state(start: JobStart, document: Mapping[str, Any] | None, error: BackendError | None) -> str:
    """`scheduled`, `paused`, `manual` (nothing starts it by itself), `missing` or `unknown`."""
    if error is not None:
        return "unknown"
    if document is None:
        return "missing"
    if start.paused is None:
        return "manual"
    return "paused" if start.paused else "scheduled"


def _launch(last: JobLaunch) -> dict[str, Json]:
    return {
        "id": last.id,
        "state": str(last.state),
        "started_at": to_text(last.started_at),
        "ended_at": to_text(last.ended_at),
        "link": last.url,
    }


_Seen = tuple[dict[str, Any] | None, JobLaunch | None, BackendError | None]


def _seen(project: OpenedProject, job: Resource) -> _Seen:
    """The document of a job (`None` if it does not exist) and its newest launch; or why the
    platform cannot be asked."""
    if job.remote is None:
        return None, None, None
    handle = JobHandle.parse(job.remote)
    try:
        backend = job_backend_for(job.spec, handle, project.job_backend)
        document = backend.read(handle.id)
        return document, backend.last(handle.id) if document is not None else None, None
    except BackendError as error:
        return None, None, error
