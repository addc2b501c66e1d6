"""The run that a job launches, as a part of the job's spec."""

from collections.abc import Mapping

from sgpu_decl.model.address import Address
from sgpu_decl.model.desired import Desired
from sgpu_decl.model.job import RUN, STAGED
from sgpu_decl.model.jsonable import Json, canonical, digest
from sgpu_decl.model.launch import LaunchInputs
from sgpu_decl.planning.field_changes import parse
from sgpu_decl.planning.fingerprint import token

__all__ = ["launched_by", "mark_of", "run_part"]

# What a job decides, or says itself.
_OF_THE_JOB = frozenset(
    {"backend", "description", "lifecycle", "max_parallel", "on_active", "tags", "until"}
)
# The digests of what is staged, and the id of the pool: keys of the spec, and fields of a launch.
_FIELDS = {
    "code": "code_digest",
    "environment": "environment_digest",
    "packages": "packages_digest",
    "pool": "pool",
}


def run_part(run: Desired) -> dict[str, Json]:
    """What a job's spec says of the run that it launches: the run, and what it takes along."""
    spec = {key: item for key, item in parse(run.spec).items() if key not in _OF_THE_JOB}
    staged = {
        "code": run.code_digest,
        "environment": run.environment_digest,
        "packages": run.packages.digest if run.environment and run.packages else None,
        "pool": run.pool.pool if run.pool else None,
    }
    return {
        RUN: {"name": run.address.name, **spec},
        STAGED: {key: item for key, item in staged.items() if item is not None},
    }


def launched_by(spec: str) -> LaunchInputs | None:
    """The launch that the job with that spec makes again and again: the spec of the run has its
    name, and there is no fingerprint. None for a job that launches no run of the project."""
    job = parse(spec)
    run, staged = job.get(RUN), job.get(STAGED)
    if not isinstance(run, Mapping):
        return None
    parts = staged if isinstance(staged, Mapping) else {}
    digests = {_FIELDS[key]: str(value) for key, value in parts.items() if key in _FIELDS}
    return LaunchInputs(
        spec=canonical({**run, "backend": job.get("backend", {})}), fingerprint="", **digests
    )


def mark_of(lineage: str, job: Address, spec: str) -> str:
    """What tells one version of what a job launches from all others: the same run with the same
    code, in the same environment, has the same."""
    inputs = [parse(spec).get(key) for key in (RUN, STAGED, "backend")]
    return token(lineage, job, 0, digest(canonical(inputs)))
