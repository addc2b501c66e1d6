"""The changes of a plan that start no ranks."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace

from sgpu_decl.applying.apply_result import ApplyLog
from sgpu_decl.applying.job_changes import Jobs
from sgpu_decl.applying.launch_records import resource_of
from sgpu_decl.backends.base import Backend
from sgpu_decl.errors import BackendError, SgpuError
from sgpu_decl.model.address import Kind
from sgpu_decl.model.attempt import AttemptRef
from sgpu_decl.model.event import Step
from sgpu_decl.model.launch import LaunchRecord
from sgpu_decl.model.plan import Action, Change, Reason
from sgpu_decl.planning.live_state import naming_way_out
from sgpu_decl.storing.state_store import StateWriter


@dataclass(slots=True, kw_only=True)
class StateChanges:
    """Carries out what only the state, a job or an active attempt is changed by. `launches` are
    those that were active when it was planned."""

    writer: StateWriter
    launches: Mapping[AttemptRef, LaunchRecord]
    backends: Callable[[str], Backend]
    jobs: Jobs
    log: ApplyLog
    asked: dict[AttemptRef, SgpuError | None] = field(default_factory=dict)
    """The attempts that were asked to stop, and why that was not possible."""

    def carry_out(self, change: Change) -> None:
        """A change that starts nothing."""
        if change.kind is Kind.JOB:
            self._settle_job(change)
            return
        match change.action:
            case Action.CREATE | Action.UPDATE if change.kind is Kind.ENVIRONMENT:
                # It was staged before the walk.
                self.writer.record_resource(resource_of(change, last=None))
                self.log.tell(change, Step.STAGED)
            case Action.ADOPT:
                ref = AttemptRef(change.address, _attempt_number(change))
                self.log.adopted.append(ref)
                self.log.tell(change, Step.ADOPTED, ref, change.unavailable or "")
            case Action.UPDATE:
                self._record(change)
                self.log.tell(change, Step.UPDATED)
                if change.reason is Reason.ALREADY_RUNNING:
                    self.log.adopted.append(AttemptRef(change.address, _attempt_number(change)))
            case Action.FORGET:
                self._record(change, gone=True)
                self.log.tell(change, Step.FORGOTTEN)
            case Action.DESTROY:
                try:
                    self.stop(change)
                except BackendError as error:
                    self.log.fail(change, error)
                    return
                self._record(change, gone=True)
                self.log.tell(change, Step.DESTROYED)
            case _:
                pass

    def _settle_job(self, change: Change) -> None:
        try:
            outcome = self.jobs.carry_out(change)
        except SgpuError as error:
            self.log.fail(change, error)
            return
        if outcome is not None:
            step, message = outcome
            self.log.tell(change, step, message=message)

    def stop_all(self, changes: Iterable[Change]) -> None:
        """Ask the attempts that changes end or replace to stop, all at once: `stop` says of each
        what became of that."""
        asked: dict[str, list[LaunchRecord]] = {}
        for ref in (ref for change in changes for ref in _stopped_by(change)):
            if ref in self.launches and ref not in self.asked:
                asked.setdefault(self.launches[ref].backend, []).append(self.launches[ref])
        for kind, records in asked.items():
            self.writer.check_held()
            errors = self.backends(kind).launcher.cancel_all(records)
            self.asked |= {record.ref: errors.get(record.ref) for record in records}

    def stop(self, change: Change) -> None:
        """Ask the attempts that a change ends or replaces to stop. Raises SgpuError."""
        self.stop_all([change])
        for ref in _stopped_by(change):
            if error := self.asked.get(ref):
                with naming_way_out(self.launches[ref]):
                    raise error
            if ref not in self.log.stopping:
                self.log.stopping.append(ref)
                self.log.tell(change, Step.STOPPED, ref)

    def _record(self, change: Change, *, gone: bool = False) -> None:
        recorded = self.jobs.state.resources.get(change.address)
        if change.action is Action.UPDATE:
            resource = resource_of(change, last=recorded.last if recorded else None)
        elif recorded is not None:
            resource = recorded
        else:
            return
        self.writer.record_resource(replace(resource, gone=gone))


def _stopped_by(change: Change) -> list[AttemptRef]:
    numbers = change.launch.stop if change.launch else ()
    return [AttemptRef(change.address, number) for number in numbers]


def _attempt_number(change: Change) -> int:
    if change.attempt is not None:
        return change.attempt
    return change.prior.attempt if change.prior else 0
