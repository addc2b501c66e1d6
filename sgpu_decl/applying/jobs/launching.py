"""From a job's spec to the launch that its platform makes of it, again and again."""

from sgpu_decl.backends.base import Launching
from sgpu_decl.model.address import Address
from sgpu_decl.model.attempt import AttemptRef
from sgpu_decl.planning.jobs.running import mark_of, run_in, staged_in

__all__ = ["launching_in"]


def launching_in(spec: str, job: Address, owner: str, lineage: str) -> Launching | None:
    """What the job with that spec launches: not an attempt of ours, so it has the number 0. None
    where it launches no run of the project.

    Args:
        owner: the file that declares it, relative to the project.
        lineage: that of the state which the job is recorded in.
    """
    run = run_in(spec)
    if run is None:
        return None
    staged = staged_in(spec)
    return Launching(
        ref=AttemptRef(job, 0),
        token=mark_of(lineage, job, spec),
        lineage=lineage,
        spec=run,
        owner=owner,
        code_digest=staged.get("code"),
        environment_digest=staged.get("environment"),
        pool=staged.get("pool"),
    )
