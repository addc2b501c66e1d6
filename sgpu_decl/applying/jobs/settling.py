"""Jobs that a crash kept from being recorded: looked for by the mark that their intent knows."""

from dataclasses import replace

from sgpu_decl.applying.jobs.desiring import Keepers
from sgpu_decl.applying.jobs.keepers import keeper_for, title_in
from sgpu_decl.model.job import JobHandle
from sgpu_decl.model.state import Intent, Resource

__all__ = ["made_by"]


def made_by(intent: Intent, keepers: Keepers) -> Resource | None:
    """The job that an intent made, `None` where it made none.

    Raises:
        BackendError: its keeper does not answer.
    """
    resource = intent.resource_record
    if resource is None:
        return None
    keeper = keeper_for(resource.spec, None, keepers)
    for job in keeper.named(title_in(resource.spec)):
        if job.token == intent.token:
            handle = JobHandle(id=job.id, workspace=keeper.workspace, token=intent.token)
            return replace(resource, remote=str(handle))
    return None
