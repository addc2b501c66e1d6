"""The attempts that run on a cluster, as its jobs tell."""

from collections.abc import Mapping

from sgpu_decl.backends.ray.api.dashboard import Dashboard
from sgpu_decl.errors import BackendError

_ACTIVE = ("PENDING", "RUNNING")
_JOBS = "/api/jobs/"


def running_attempts(dashboard: Dashboard) -> tuple[str, ...]:
    """The attempts that are active there, such as `` `run.train#3` ``; none if the cluster does not
    say."""
    try:
        jobs = dashboard.get(_JOBS)
    except BackendError:
        return ()  # what is free is known without them
    names = []
    for job in jobs if isinstance(jobs, list) else ():
        metadata = job.get("metadata") if isinstance(job, Mapping) else None
        if not isinstance(metadata, Mapping) or job.get("status") not in _ACTIVE:
            continue
        address, attempt = metadata.get("sgpu.address"), metadata.get("sgpu.attempt")
        if address and attempt:
            names.append(f"`{address}#{attempt}`")
    return tuple(sorted(names))
