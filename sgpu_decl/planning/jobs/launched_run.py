"""The run that a job launches, as a part of the job's spec."""

from collections.abc import Mapping

from sgpu_decl.model.address import Address
from sgpu_decl.model.desired import Desired
from sgpu_decl.model.job import RUN, STAGED
from sgpu_decl.model.jsonable import Json, canonical, digest
from sgpu_decl.planning.field_changes import parse
from sgpu_decl.planning.fingerprint import token

__all__ = ["mark_of", "run_in", "run_part", "staged_in"]

# What a job decides, or says itself.
_OF_THE_JOB = frozenset(
    {"backend", "description", "lifecycle", "max_parallel", "on_active", "tags", "until"}
)


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


def run_in(spec: str) -> str | None:
    """The spec of the run that the job with that spec launches, with its name; None for a job that
    launches none."""
    job = parse(spec)
    run = job.get(RUN)
    if not isinstance(run, Mapping):
        return None
    return canonical({**run, "backend": job.get("backend", {})})


def staged_in(spec: str) -> Mapping[str, str]:
    """The digests of what a job's run takes along: `code`, `environment`, `packages`; and the id of
    its `pool`. What it has none of is left out."""
    staged = parse(spec).get(STAGED)
    return {key: str(item) for key, item in staged.items()} if isinstance(staged, Mapping) else {}


def mark_of(lineage: str, job: Address, spec: str) -> str:
    """What tells one version of what a job launches from all others: the same run with the same
    code, in the same environment, has the same."""
    inputs = [parse(spec).get(key) for key in (RUN, STAGED, "backend")]
    return token(lineage, job, 0, digest(canonical(inputs)))
