"""Carrying out the change of one job: one effect, remembered at once."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime

from sgpu_decl.applying.error_places import with_place
from sgpu_decl.applying.launch_records import incomplete
from sgpu_decl.applying.release import free_old_versions
from sgpu_decl.backends.job_backend import AppliedJob, JobBackend
from sgpu_decl.errors import BackendError, OutcomeUnknown, SgpuError
from sgpu_decl.model.backend_kinds import job_rules
from sgpu_decl.model.event import Step
from sgpu_decl.model.job import JobHandle, recorded_handle
from sgpu_decl.model.jsonable import Json, Spec
from sgpu_decl.model.plan import Action, Change, FieldEffect, PlannedLaunch
from sgpu_decl.model.state import Intent, Resource, State
from sgpu_decl.planner.jobs.ignored_settings import ignored_by, taking
from sgpu_decl.planner.jobs.launched_run import launches_in
from sgpu_decl.planning.job_spec import JobBackends, applied_job, job_backend_for, requests_in
from sgpu_decl.storing.state_store import StateWriter


@dataclass(frozen=True, slots=True, kw_only=True)
class Jobs:
    """Carries out what a plan says of jobs, under the state lock that `writer` holds. `state` is
    that of before: each change touches its own address alone."""

    writer: StateWriter
    state: State
    backends: JobBackends
    plan_id: str
    clock: Callable[[], datetime]

    def carry_out(self, change: Change) -> tuple[Step, str] | None:
        """Do it, and say what was done; `None` for nothing.

        Raises:
            SgpuError: it was not done; what was there before is there still.
        """
        try:
            match change.action:
                case Action.CREATE:
                    return Step.CREATED, self._create(change)
                case Action.UPDATE:
                    return Step.UPDATED, self._update(change)
                case Action.DESTROY:
                    return Step.DESTROYED, self._destroy(change)
                case Action.FORGET:
                    return Step.FORGOTTEN, self._forget(change)
                case _:
                    return None
        except BackendError as error:
            raise with_place(error, change) from error

    def _create(self, change: Change) -> str:
        launch, recorded = _launch(change), self.state.resources.get(change.address)
        if launch.token is None:
            raise incomplete(change)
        backend = job_backend_for(launch.inputs.spec, None, self.backends, None)
        spec = self._stage(change, backend, None)
        resource = Resource(
            address=change.address,
            backend=change.backend,
            owner=launch.owner,
            spec=Spec.of(spec),
            last=None,
            numbered=(recorded.numbered if recorded else 0) + 1,
        )
        intent = Intent(
            token=launch.token,
            address=change.address,
            owner=launch.owner,
            action=str(change.action),
            attempt=resource.numbered,
            plan_id=self.plan_id,
            created_at=self.clock(),
            job=resource,
        )
        self.writer.begin(intent)
        self.writer.check_held()
        try:
            job_id = backend.create(spec, launch.token)
        except OutcomeUnknown:
            raise  # the intent stays open: the next apply looks for the job
        except SgpuError:
            self.writer.abandon(intent)
            raise
        handle = JobHandle(id=job_id, workspace=backend.workspace, token=launch.token)
        self.writer.made(intent, replace(resource, remote=str(handle)))
        return backend.url(job_id)

    def _update(self, change: Change) -> str:
        launch = _launch(change)
        recorded, handle = self._recorded(change)
        spec = launch.inputs.spec
        # Settings that merely follow from what the run takes along are not among the fields.
        follows = change.code is not None or change.environment is not None
        if follows or any(field.effect is FieldEffect.IN_PLACE for field in change.fields):
            backend = job_backend_for(launch.inputs.spec, handle, self.backends, None)
            _require_ours(change, handle, backend)
            applied = applied_job(recorded, self.state.lineage)
            located = self._stage(change, backend, applied)
            self.writer.check_held()
            backend.reset(handle.id, located, handle.token)
            spec = Spec.of(located)
        resource = replace(recorded, backend=change.backend, owner=launch.owner, spec=spec)
        self.writer.record_resource(resource)
        free_old_versions(resource, self.state.lineage, self.backends)
        return ""

    def _destroy(self, change: Change) -> str:
        recorded, handle = self._recorded(change)
        backend = job_backend_for(recorded.spec, handle, self.backends, recorded.owner)
        _require_ours(change, handle, backend)
        # Asked before: of a job that is gone nobody may know.
        idle = bool(launches_in(recorded.spec)) and not backend.busy(handle.id)
        self.writer.check_held()
        backend.delete(handle.id)
        gone = replace(recorded, gone=True)
        self.writer.record_resource(gone)
        if idle:
            free_old_versions(gone, self.state.lineage, self.backends)
        return ""

    def _forget(self, change: Change) -> str:
        recorded, handle = self._recorded(change)
        self.writer.record_resource(replace(recorded, gone=True))
        return f"the job {handle.id} stays where it is"

    def _stage(
        self, change: Change, backend: JobBackend, applied: AppliedJob | None
    ) -> Mapping[str, Json]:
        """Have there what the job takes along, and return its spec, with where that is: another
        user may have made the plan."""
        launch = _launch(change)
        spec = launch.inputs.spec.fields
        requests = requests_in(
            launch.inputs.spec,
            change.address,
            backend=change.backend,
            owner=launch.owner,
            lineage=self.state.lineage,
        )
        if not requests:
            return spec
        located = backend.located(spec, requests, applied)
        backend.stage(requests, located)
        ignored = ignored_by(spec, change.address.name, job_rules(change.backend))
        return taking(located, spec, ignored)

    def _recorded(self, change: Change) -> tuple[Resource, JobHandle]:
        recorded = self.state.resources.get(change.address)
        if recorded is None or recorded.remote is None:
            raise incomplete(change)
        return recorded, recorded_handle(recorded)


def _require_ours(change: Change, handle: JobHandle, backend: JobBackend) -> None:
    """Refuse a job that another tool manages: it may have taken over the job since it was planned.
    Raises SgpuError."""
    document = backend.read(handle.id)
    manager = job_rules(change.backend).manager(document) if document is not None else None
    if manager is not None:
        raise SgpuError(
            f"the job {handle.id} is managed by {manager}, and is left as it is",
            hint=f"`sgpu state rm {change.address}` removes it from the state here; to keep it, "
            "take it out of there (`databricks bundle deployment unbind KEY`)",
            code="managed_by_bundle",
        )


def _launch(change: Change) -> PlannedLaunch:
    if change.launch is None:
        raise incomplete(change)
    return change.launch
