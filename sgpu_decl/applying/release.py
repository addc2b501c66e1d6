"""Giving back what was staged for runs that were destroyed, and for older versions of jobs."""

import os
from collections.abc import Sequence

from sgpu_decl.diagnostics.diagnostic import Diagnostic, Severity
from sgpu_decl.errors import BackendError
from sgpu_decl.model.address import Kind
from sgpu_decl.model.attempt import AttemptRef
from sgpu_decl.model.job import recorded_handle
from sgpu_decl.model.owner import Owner
from sgpu_decl.model.plan import Action, Plan
from sgpu_decl.model.state import Resource
from sgpu_decl.planner.needs import Needs
from sgpu_decl.planning.job_spec import JobBackends, applied_job, job_backend_for
from sgpu_decl.planning.live_state import is_unreachable
from sgpu_decl.planning.project import Project

_FREEING = (Action.UPDATE, Action.DESTROY)


def free_old_versions(job: Resource, lineage: str, job_backends: JobBackends) -> None:
    """Delete what older versions of a recorded job launched, and all of it where the job is gone.
    Of a job that was forgotten, and is there still, nothing is deleted; nor while a launch is
    active, nor where its backend does not let us: gc tries again."""
    requests = applied_job(job, lineage).requests
    if not requests or job.remote is None:
        return
    handle = recorded_handle(job)
    try:
        backend = job_backend_for(job.spec, handle, job_backends, job.owner)
        if job.gone and backend.read(handle.id) is not None:
            return
        if not backend.busy(handle.id):
            backend.free(handle.id, requests, gone=job.gone)
    except BackendError:
        return


def release_destroyed(project: Project, plan: Plan) -> Sequence[Diagnostic]:
    """Delete the code copies of all ended attempts of the runs that a plan destroyed, and what only
    they, or versions of jobs that are no more, shared. Returns warnings about platforms that do
    not answer: the runs are destroyed all the same."""
    problems: dict[str, Diagnostic] = {}
    destroyed = [change.address for change in plan.changes if change.action is Action.DESTROY]
    history = [item for address in destroyed for item in project.states.history(address)]
    launch_of = project.state().launch_of
    for attempt in history:
        backend, launch = project.backend(attempt.backend), launch_of(attempt)
        try:
            if backend.attempts.elsewhere(launch) is None:  # else its folders are elsewhere
                backend.storage.unstage(launch)
        except BackendError as error:
            if not is_unreachable(error):
                raise
            problems.setdefault(error.message, _not_deleted(attempt.ref, error))
    kinds = {item.backend for item in history}
    kinds |= {
        change.backend
        for change in plan.changes
        if change.kind is Kind.JOB and change.action in _FREEING
    }
    for kind in kinds:
        try:
            project.backend(kind).storage.collect()
        except BackendError as error:
            if not (is_unreachable(error) and problems):
                raise
    return tuple(problems.values())


def _not_deleted(ref: AttemptRef, error: BackendError) -> Diagnostic:
    return Diagnostic(
        code="host_unreachable",
        severity=Severity.WARNING,
        summary=f"what was staged for `{ref}` was not deleted: {error.message}",
        hint="`sgpu gc` deletes it once that answers; if it is gone for good, nothing is left",
    )


def record_references(project: Project, lineage: str, needs: Needs) -> None:
    """Record what the state of that lineage needs, so that no other project's gc takes it. The
    caller holds the lock of the state: of two callers, the later one knows more.

    Raises:
        SgpuError: that cannot be written.
    """
    file = project.states.file
    owner = Owner(
        path=None if file is None else os.fspath(file), lineage=lineage, store=project.states.url
    )
    project.store.refer(owner, needs.code)
    if needs.environments or project.environments.objects.is_dir():
        project.environments.refer(owner, needs.environments)
