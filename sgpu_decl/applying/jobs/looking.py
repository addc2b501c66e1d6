"""Jobs as they are now, for people and programs. Nothing here writes."""

import json
from collections.abc import Mapping
from typing import Any

from sgpu_decl.applying.jobs.keepers import keeper_for
from sgpu_decl.applying.site import Site
from sgpu_decl.errors import BackendError
from sgpu_decl.model.job import JobHandle
from sgpu_decl.model.jsonable import Json
from sgpu_decl.model.state import Resource

__all__ = ["describe_jobs", "show_job"]


def describe_jobs(site: Site, jobs: list[Resource]) -> list[dict[str, Json]]:
    """One object for each: what is recorded, and what is seen where it is kept."""
    return [_described(site, job) for job in jobs]


def show_job(site: Site, job: Resource) -> dict[str, Json]:
    """One object whole, with the settings that were applied and those that it has."""
    seen, _ = _seen(site, job)
    return {
        **_described(site, job),
        "owner": job.owner,
        "spec": json.loads(job.spec),
        "live": seen,
    }


def _described(site: Site, job: Resource) -> dict[str, Json]:
    handle = JobHandle.parse(job.remote) if job.remote else None
    spec: dict[str, Any] = json.loads(job.spec)
    seen, error = _seen(site, job)
    settings: dict[str, Any] = seen or spec
    start: dict[str, Any] = settings.get("schedule") or settings.get("trigger") or {}
    return {
        "address": str(job.address),
        "name": job.address.label,
        "title": settings.get("name"),
        "state": _state(start, seen, error),
        "backend": job.backend,
        "id": handle.id if handle else None,
        "workspace": handle.workspace if handle else None,
        "schedule": start.get("quartz_cron_expression"),
        "timezone": start.get("timezone_id"),
        "trigger": {key: it for key, it in start.items() if key != "pause_status"}
        if "trigger" in settings
        else None,
        "links": {"job": f"{handle.workspace}/jobs/{handle.id}"} if handle else {},
        "error": error.message if error else None,
    }


def _state(
    start: Mapping[str, Any], seen: Mapping[str, Any] | None, error: BackendError | None
) -> str:
    """`scheduled`, `paused`, `manual` (nothing starts it by itself), `missing` or `unknown`."""
    if error is not None:
        return "unknown"
    if seen is None:
        return "missing"
    if not start:
        return "manual"
    return "paused" if start.get("pause_status") == "PAUSED" else "scheduled"


def _seen(site: Site, job: Resource) -> tuple[dict[str, Any] | None, BackendError | None]:
    """The document, `None` where there is no such job; or why nobody knows."""
    if job.remote is None:
        return None, None
    handle = JobHandle.parse(job.remote)
    try:
        return keeper_for(job.spec, handle, site.keeper).read(handle.id), None
    except BackendError as error:
        return None, error
