"""`sgpu start`: launches an applied job now, once, and says how far its tasks are.

Before the platform is asked, the token of the launch and what was asked for are written to a file
of this machine. The file goes once the answer is there. A command that finds the file of an
interrupted one, which asked for the same, asks with the same token: it is the same launch.
"""

import json
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from sgpu_decl.atomic_files import write_atomic
from sgpu_decl.diagnostics.nearest_names import nearest
from sgpu_decl.errors import NotFound, OutcomeUnknown, SgpuError, Usage
from sgpu_decl.model.backend_kinds import job_rules
from sgpu_decl.model.job import TASKS, StartedJob, recorded_handle
from sgpu_decl.model.jsonable import Json, canonical
from sgpu_decl.model.state import Resource
from sgpu_decl.planning.job_spec import applied_job, job_backend_for
from sgpu_decl.planning.project import Project

_FOLDER = "starts"


def start_job(
    project: Project,
    job: Resource,
    parameters: Mapping[str, str],
    tasks: Sequence[str],
) -> StartedJob:
    """Launch a job as it was applied.

    Raises:
        Usage: it has no such parameter, or no such task.
        OutcomeUnknown: it may have been launched; the same call finds it.
        SgpuError: its platform refuses it, or another tool manages the job.
    """
    _require_known(job, "parameter", parameters, job.spec.fields.get("parameters"))
    _require_known(job, "task", tasks, job.spec.fields.get(TASKS))
    if job.remote is None:
        raise NotFound(f"`{job.address}` is not applied", hint="`sgpu apply` creates it")
    handle = recorded_handle(job)
    backend = job_backend_for(job.spec, handle, project.job_backend, job.owner)
    document = backend.read(handle.id)
    if document is None:
        raise NotFound(
            f"`{job.address}` was deleted {job_rules(job.backend).where}",
            hint="`sgpu apply` creates it again",
        )
    manager = job_rules(job.backend).manager(document)
    if manager is not None:
        raise SgpuError(
            f"the job {handle.id} is managed by {manager}",
            hint="start it with that tool, or in the workspace",
            code="managed_by_bundle",
        )
    asked: dict[str, Json] = {
        "job": handle.id,
        "parameters": dict(parameters),
        "tasks": sorted(tasks),
    }
    applied = applied_job(job, project.believed().lineage)
    last = backend.last(handle.id)
    file = project.state_dir / _FOLDER / f"{job.address.name}.json"
    open_token = _token_of(file, asked)
    token = open_token or f"sgpu-start-{secrets.token_hex(20)}"
    if open_token is None:
        file.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(file, canonical({**asked, "token": token}).encode())
    try:
        launch_id = backend.start(handle.id, applied, parameters, tasks, token)
    except OutcomeUnknown:
        raise  # the file stays: the next call finds the launch
    except SgpuError:
        file.unlink(missing_ok=True)
        raise
    launch, started = backend.launch(launch_id, applied)
    file.unlink(missing_ok=True)
    active = last is not None and last.state.active and last.id != launch.id
    return StartedJob(
        address=job.address,
        launch=launch,
        tasks=started,
        again=open_token is not None,
        behind=last.id if last is not None and active else None,
    )


def last_launch(project: Project, job: Resource) -> StartedJob | None:
    """The newest launch of a job, whoever started it; None if it was never launched. Raises
    BackendError."""
    handle = recorded_handle(job)
    backend = job_backend_for(job.spec, handle, project.job_backend, job.owner)
    last = backend.last(handle.id)
    if last is None:
        return None
    launch, tasks = backend.launch(last.id, applied_job(job, project.believed().lineage))
    return StartedJob(address=job.address, launch=launch, tasks=tasks)


def look_again(project: Project, job: Resource, started: StartedJob) -> StartedJob:
    """The same launch as it is now. Raises BackendError."""
    handle = recorded_handle(job)
    backend = job_backend_for(job.spec, handle, project.job_backend, job.owner)
    launch, tasks = backend.launch(started.launch.id, applied_job(job, project.believed().lineage))
    return replace(started, launch=launch, tasks=tasks)


def cancel_launches(project: Project, job: Resource) -> bool:
    """Ask the active launches of a job to stop; False if there are none. Raises BackendError."""
    handle = recorded_handle(job)
    backend = job_backend_for(job.spec, handle, project.job_backend, job.owner)
    if not backend.busy(handle.id):
        return False
    backend.cancel(handle.id)
    return True


def _token_of(file: Path, asked: Mapping[str, Any]) -> str | None:
    """The token of an interrupted call that asked for the same."""
    try:
        known = json.loads(file.read_bytes())
    except (OSError, ValueError):
        return None
    if not isinstance(known, dict) or not isinstance(token := known.pop("token", None), str):
        return None
    return token if known == asked else None


def _require_known(
    job: Resource, what: str, names: Mapping[str, str] | Sequence[str], known: object
) -> None:
    declared = list(known) if isinstance(known, Mapping) else []
    for name in names:
        if name not in declared:
            near = nearest(name, declared)
            listed = ", ".join(f"`{one}`" for one in declared) or "none"
            raise Usage(
                f"`{job.address}` has no {what} `{name}`",
                hint=f"did you mean `{near}`?"
                if near
                else f"it has: {listed}. Apply first if you added it to the file",
            )
