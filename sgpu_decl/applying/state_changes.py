"""The changes of a plan that start no ranks."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from sgpu_decl.applying.apply_result import ApplyLog
from sgpu_decl.applying.job_changes import Jobs
from sgpu_decl.applying.launch_records import resource_of
from sgpu_decl.backends.base import Backend
from sgpu_decl.errors import SgpuError
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
                self.stop(change)
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

    def stop(self, change: Change) -> None:
        """Ask the attempts that a change ends or replaces to stop."""
        for number in change.launch.stop if change.launch else ():
            ref = AttemptRef(change.address, number)
            if ref in self.log.stopping:
                continue
            if record := self.launches.get(ref):
                self.writer.check_held()
                with naming_way_out(record):
                    self.backends(record.backend).launcher.cancel(record)
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


def _attempt_number(change: Change) -> int:
    if change.attempt is not None:
        return change.attempt
    return change.prior.attempt if change.prior else 0
