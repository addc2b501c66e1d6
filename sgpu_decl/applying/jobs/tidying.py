"""Giving back what the run of a job took along, once no launch of the job needs it."""

from sgpu_decl.applying.jobs.desiring import Keepers
from sgpu_decl.applying.jobs.keepers import keeper_for
from sgpu_decl.applying.jobs.launching import launching_in
from sgpu_decl.errors import BackendError
from sgpu_decl.model.job import JobHandle
from sgpu_decl.model.state import Resource

__all__ = ["tidy"]


def tidy(job: Resource, lineage: str, keepers: Keepers) -> None:
    """Delete what older versions of a recorded job launched, and all of it where the job is gone.
    Of a job that was forgotten, and is there still, nothing is deleted; nor while a launch is
    active, nor where its keeper does not let us: gc tries again."""
    launching = launching_in(job.spec, job.address, job.owner, lineage)
    if launching is None or job.remote is None:
        return
    handle = JobHandle.parse(job.remote)
    try:
        keeper = keeper_for(job.spec, handle, keepers)
        if job.gone and keeper.read(handle.id) is not None:
            return
        if not keeper.busy(handle.id):
            keeper.free(launching, gone=job.gone)
    except BackendError:
        return
