"""The attempts that run on a cluster, as its jobs tell."""

from collections.abc import Iterable, Mapping
from typing import Any

from sgpu_decl.backends.ray.cluster.job_verdict import ACTIVE


def running_attempts(jobs: Iterable[Mapping[str, Any]], lineage: str) -> tuple[str, ...]:
    """The attempts that are active there, such as `` `run.train#3` ``: those of the state with this
    lineage. Other projects have runs with the same names."""
    names = []
    for job in jobs:
        metadata = job.get("metadata") or {}
        address, attempt = metadata.get("sgpu.address"), metadata.get("sgpu.attempt")
        own = metadata.get("sgpu.lineage") == lineage
        if own and address and attempt and job["status"] in ACTIVE:
            names.append(f"`{address}#{attempt}`")
    return tuple(sorted(names))
