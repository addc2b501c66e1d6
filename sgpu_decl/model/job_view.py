"""What is to be seen of a job, as values."""

from collections.abc import Mapping
from dataclasses import field
from datetime import datetime
from typing import Any, cast

from sgpu_decl.frozen_dataclass import FLAT, UNWRITTEN, dataclass, written_as
from sgpu_decl.model.address import Address
from sgpu_decl.model.attempt import AttemptState
from sgpu_decl.model.codec import to_json
from sgpu_decl.model.job import JobHandle
from sgpu_decl.model.job_rules import JobStart
from sgpu_decl.model.jsonable import Json


@dataclass(frozen=True, slots=True, kw_only=True)
class JobLaunch:
    """One launch of a job by its platform: not an attempt of ours."""

    id: str
    state: AttemptState
    started_at: datetime | None
    ended_at: datetime | None
    url: str = field(metadata=written_as("link"))


@dataclass(frozen=True, slots=True, kw_only=True)
class JobView:
    """One job. `state` is `scheduled`, `paused`, `manual` (nothing starts it by itself), `missing`
    or `unknown`; `error` says why it is unknown. `url` is where a person looks at it, `live` the
    settings that it has there, `spec` those that were applied."""

    address: Address
    backend: str
    owner: str
    title: str | None
    state: str
    handle: JobHandle | None = field(metadata=UNWRITTEN)
    start: JobStart = field(metadata=FLAT)
    spec: Mapping[str, Any]
    live: Mapping[str, Any] | None = None
    url: str | None = field(default=None, metadata=UNWRITTEN)
    last: JobLaunch | None = None
    error: str | None = None


def job_fields(job: JobView) -> dict[str, Json]:
    """What `status -o json` says of a job."""
    whole = whole_job_fields(job)
    return {key: whole[key] for key in whole if key not in ("owner", "spec", "live")}


def whole_job_fields(job: JobView) -> dict[str, Json]:
    """What `show -o json` says of a job."""
    return {
        "name": job.address.label,
        **cast("dict[str, Json]", to_json(job)),
        "id": job.handle.id if job.handle else None,
        "workspace": job.handle.workspace if job.handle else None,
        "links": {"job": job.url} if job.url else {},
    }
