"""The walk over a plan's changes: intent, stage and launch, record. Nothing is decided here."""

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from datetime import datetime

from sgpu_decl.applying.error_places import with_place
from sgpu_decl.applying.job_changes import Jobs
from sgpu_decl.applying.launch_group import (
    BegunLaunch,
    GroupLaunch,
    joined_records,
    stage_and_launch,
)
from sgpu_decl.applying.launch_progress import LaunchProgress
from sgpu_decl.applying.launch_records import (
    launch_of,
    never_recorded,
    resource_of,
    unrecorded,
    upstreams_of,
)
from sgpu_decl.backends.base import Backend, Launcher, LaunchRequest
from sgpu_decl.backends.kinds import kind_named
from sgpu_decl.diagnostics.diagnostic import Diagnostic
from sgpu_decl.errors import BackendError, OutcomeUnknown, SgpuError
from sgpu_decl.facts.job_spec import JobBackends
from sgpu_decl.facts.live_state import require_here
from sgpu_decl.model.address import Address, Kind
from sgpu_decl.model.attempt import AttemptRef
from sgpu_decl.model.call import Call
from sgpu_decl.model.event import ApplyEvent, Step
from sgpu_decl.model.launch import LaunchRecord
from sgpu_decl.model.matrix_cell import cell_order
from sgpu_decl.model.plan import Action, Change, Plan, Reason
from sgpu_decl.model.state import Intent, State
from sgpu_decl.model.step_progress import Progress, Quiet
from sgpu_decl.planning.joined_launches import launch_groups
from sgpu_decl.planning.run_order import launch_levels
from sgpu_decl.storing.state_store import StateWriter

Sink = Callable[[ApplyEvent], None]
Clock = Callable[[], datetime]
Backends = Callable[[str], Backend]
_LAUNCHING = (Action.CREATE, Action.REPLACE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Applied:
    """What an apply did. `stopping` are attempts that were asked to stop; they may take a while.
    `unrecorded` is what could not be written down after a launch, of this apply or of an earlier
    one: the run goes on all the same."""

    launched: tuple[AttemptRef, ...] = ()
    adopted: tuple[AttemptRef, ...] = ()
    stopping: tuple[AttemptRef, ...] = ()
    failed: tuple[tuple[Address, SgpuError], ...] = ()
    unrecorded: tuple[Diagnostic, ...] = ()

    def __repr__(self) -> str:
        """Short: a notebook shows it."""
        groups = (
            ("launched", self.launched),
            ("adopted", self.adopted),
            ("stopping", self.stopping),
        )
        words = [f"{name} {', '.join(map(str, refs))}" for name, refs in groups if refs]
        words += [f"failed {address}" for address, _ in self.failed]
        return f"<Applied: {'; '.join(words) or 'nothing'}>"


def execute(
    plan: Plan,
    *,
    plan_id: str,
    writer: StateWriter,
    launches: Mapping[AttemptRef, LaunchRecord],
    backends: Backends,
    job_backends: JobBackends,
    sink: Sink,
    clock: Clock,
    parallelism: int,
    call: Call | None = None,
    progress: Progress | None = None,
) -> Applied:
    """Carry out every change of `plan` under the state lock that `writer` holds.

    `launches` are those that were active when it was planned: it may stop them. `call` is the
    function that its one run calls, if it was planned for one. `progress` is told how much of the
    code has been copied for all launches.

    A change that fails leaves its siblings alone; its intent is closed, since a backend that
    refuses a launch leaves nothing behind. It stays open where the backend cannot tell, and where
    the launch cannot be recorded: the next apply does that.

    Raises:
        SgpuError: something cannot work at all, found before the first effect.
    """
    level = launch_levels(plan.changes)
    launching = sorted(
        filter(_launches, plan.changes),
        key=lambda change: (level[change.address], *_launch_order(change)),
    )
    groups = launch_groups(launching, _is_joined)
    records = {change.address: launch_of(plan, change) for change in launching}
    known = writer.state.launches() | {record.ref: record for record in records.values()}
    for group in groups:
        joined = joined_records([records[change.address] for change in group])
        for change in group:
            record = records[change.address]
            upstreams = upstreams_of(record, known)
            backends(change.backend).launcher.check(
                LaunchRequest(record=record, upstreams=upstreams, joined=joined, call=call)
            )
    for record in _touched(plan, writer.state, launches):
        require_here(record, backends, "it can neither be stopped nor waited for from here")
    writer.record_packages(plan.package_lists)
    walk = _Walk(
        plan=plan,
        plan_id=plan_id,
        writer=writer,
        state=writer.state,
        launches=launches,
        known=known,
        backends=backends,
        jobs=Jobs(
            writer=writer,
            state=writer.state,
            backends=job_backends,
            plan_id=plan_id,
            clock=clock,
        ),
        sink=sink,
        clock=clock,
        call=call,
        progress=LaunchProgress(progress or Quiet()),
    )
    for change in plan.changes:
        if not _launches(change):
            walk.settle(change)
    walk.launch_all(iter(groups), parallelism)
    walk.finish()
    return walk.outcome()


@dataclass(slots=True, kw_only=True)
class _Walk:
    plan: Plan
    plan_id: str
    writer: StateWriter
    state: State  # before the walk: each change touches its own address alone
    launches: Mapping[AttemptRef, LaunchRecord]
    known: Mapping[AttemptRef, LaunchRecord]  # those before the walk, and all of the plan
    backends: Backends
    jobs: Jobs
    sink: Sink
    clock: Clock
    call: Call | None
    progress: LaunchProgress
    launched: list[AttemptRef] = field(default_factory=list)
    adopted: list[AttemptRef] = field(default_factory=list)
    stopping: list[AttemptRef] = field(default_factory=list)
    failed: list[tuple[Address, SgpuError]] = field(default_factory=list)
    unrecorded: list[Diagnostic] = field(default_factory=list)

    def outcome(self) -> Applied:
        return Applied(
            launched=tuple(self.launched),
            adopted=tuple(sorted(self.adopted)),
            stopping=tuple(sorted(self.stopping)),
            failed=tuple(self.failed),
            unrecorded=tuple(self.unrecorded),
        )

    def finish(self) -> None:
        """Record that the plan was applied. What was launched, and why something was not, counts
        whether that works or not."""
        try:
            self.writer.plan_applied(self.plan_id)
        except SgpuError as error:
            if not (self.launched or self.failed):
                raise
            self.unrecorded.append(unrecorded(error))

    def settle(self, change: Change) -> None:
        """A change that starts nothing."""
        if change.kind is Kind.JOB:
            self._settle_job(change)
            return
        match change.action:
            case Action.CREATE | Action.UPDATE if change.kind is Kind.ENVIRONMENT:
                # It was staged before the walk.
                self.writer.record_resource(resource_of(change, last=None))
                self._tell(change, Step.STAGED)
            case Action.ADOPT:
                ref = AttemptRef(change.address, _attempt_number(change))
                self.adopted.append(ref)
                self._tell(change, Step.ADOPTED, ref)
            case Action.UPDATE:
                self._record(change)
                self._tell(change, Step.UPDATED)
                if change.reason is Reason.ALREADY_RUNNING:
                    self.adopted.append(AttemptRef(change.address, _attempt_number(change)))
            case Action.FORGET:
                self._record(change, gone=True)
                self._tell(change, Step.FORGOTTEN)
            case Action.DESTROY:
                self._stop(change)
                self._record(change, gone=True)
                self._tell(change, Step.DESTROYED)
            case _:
                pass

    def _settle_job(self, change: Change) -> None:
        try:
            outcome = self.jobs.carry_out(change)
        except SgpuError as error:
            self._fail(change, error)
            return
        if outcome is not None:
            step, message = outcome
            self._tell(change, step, message=message)

    def launch_all(self, groups: Iterator[tuple[Change, ...]], parallelism: int) -> None:
        """Launch groups of changes, each of which is started as one. Intents are committed and
        closed by this thread alone, in the order of the groups; only staging and launching
        overlap."""
        with ThreadPoolExecutor(max_workers=parallelism) as pool:
            running: deque[tuple[GroupLaunch, Sequence[BegunLaunch]]] = deque()
            last_queued: GroupLaunch | None = None
            for group in groups:
                if len(running) == parallelism:
                    self._close(*running.popleft())
                upstreams = {upstream.address for change in group for upstream in change.after}
                while any(one.change.address in upstreams for _, begun in running for one in begun):
                    self._close(*running.popleft())
                launcher = self.backends(group[0].backend).launcher
                try:
                    begun = self._begin(group, launcher)
                except SgpuError as error:
                    for change in group:
                        self._fail(change, error)
                    continue
                launchings = [self._request(one, begun) for one in begun]
                queues = any(map(launcher.may_queue, launchings))
                before = last_queued if queues else None
                started = pool.submit(
                    stage_and_launch, launcher, launchings, before, self.writer.check_held
                )
                if queues:
                    last_queued = started
                running.append((started, begun))
            while running:
                self._close(*running.popleft())

    def _request(self, one: BegunLaunch, group: Sequence[BegunLaunch]) -> LaunchRequest:
        return LaunchRequest(
            record=one.launch,
            earlier=self.state.earlier(one.launch),
            upstreams=upstreams_of(one.launch, self.known),
            joined=joined_records([other.launch for other in group]),
            call=self.call,
            git=self.plan.git.of_launch if self.plan.git else {},
            progress=self.progress.of(one.launch.ref),
        )

    def _require_upstreams(self, change: Change) -> None:
        """Refuse a launch that would wait for one that did not happen."""
        if not change.after:
            return
        failed = {address for address, _ in self.failed}
        for upstream in change.after:
            if upstream.address in failed:
                raise SgpuError(
                    f"`{change.address.label}` was not launched: it comes after "
                    f"`{upstream.address.label}`, which could not be launched",
                    hint=f"fix `{upstream.address.label}`, and apply again",
                    code="upstream_failed",
                )

    def _begin(self, group: Sequence[Change], launcher: Launcher) -> Sequence[BegunLaunch]:
        """Commit the intents of a group. One that cannot be committed leaves those before it open:
        nothing of them is staged, so that the next apply drops them."""
        for change in group:
            self._require_upstreams(change)
        # With the intent: a machine that settles it must know whose it is.
        site = launcher.site()
        begun = []
        for change in group:
            launch = replace(launch_of(self.plan, change), reference=site)
            intent = Intent(
                token=launch.token,
                address=change.address,
                owner=launch.owner,
                action=str(change.action),
                attempt=launch.ref.number,
                plan_id=self.plan_id,
                created_at=self.clock(),
                launch=launch,
            )
            self.writer.begin(intent)
            self._tell(change, Step.STARTED, launch.ref)
            begun.append(BegunLaunch(change=change, launch=launch, intent=intent))
        return begun

    def _close(self, running: GroupLaunch, begun: Sequence[BegunLaunch]) -> None:
        try:
            references = running.result()
        except SgpuError as error:
            for one in begun:
                self._close_failed(one, error)
            return
        for one, reference in zip(begun, references, strict=True):
            self._close_launched(one, reference)

    def _close_failed(self, one: BegunLaunch, error: SgpuError) -> None:
        if not isinstance(error, OutcomeUnknown):  # else the next apply looks for it
            self._abandon(one.intent)
        if isinstance(error, BackendError) and error.asked_wrong:
            error = with_place(error, one.change)
        self._fail(one.change, error, one.launch.ref)

    def _close_launched(self, one: BegunLaunch, reference: str | None) -> None:
        change, intent = one.change, one.intent
        attempt = intent.attempt_record
        assert attempt is not None  # noqa: S101  set by _begin
        attempt = replace(attempt, reference=reference)
        try:
            if change.action is Action.REPLACE:
                self._stop(change)  # now that the new attempt is there, waiting for the old to end
            self.writer.launched(intent, resource_of(change, last=attempt), attempt)
        except BackendError:
            raise  # the old attempt goes on: nothing about what is recorded
        except SgpuError as error:
            if error.code in ("lock_lost", "state_diverged"):
                self._fail(change, never_recorded(attempt, error), attempt.ref)
                return
            self.unrecorded.append(unrecorded(error))
        self.launched.append(attempt.ref)
        self._tell(change, Step.LAUNCHED, attempt.ref)

    def _abandon(self, intent: Intent) -> None:
        """Where that cannot be recorded, the next apply looks whether anything was launched."""
        try:
            self.writer.abandon(intent)
        except SgpuError as error:
            self.unrecorded.append(unrecorded(error))

    def _fail(self, change: Change, error: SgpuError, ref: AttemptRef | None = None) -> None:
        self.failed.append((change.address, error))
        self._tell(change, Step.FAILED, ref, error.message)

    def _stop(self, change: Change) -> None:
        for number in change.launch.stop if change.launch else ():
            ref = AttemptRef(change.address, number)
            if record := self.launches.get(ref):
                self.writer.check_held()
                self.backends(record.backend).launcher.cancel(record)
            self.stopping.append(ref)
            self._tell(change, Step.STOPPED, ref)

    def _record(self, change: Change, *, gone: bool = False) -> None:
        recorded = self.state.resources.get(change.address)
        if change.action is Action.UPDATE:
            resource = resource_of(change, last=recorded.last if recorded else None)
        elif recorded is not None:
            resource = recorded
        else:
            return
        self.writer.record_resource(replace(resource, gone=gone))

    def _tell(
        self, change: Change, step: Step, attempt: AttemptRef | None = None, message: str = ""
    ) -> None:
        self.sink(ApplyEvent(step=step, address=change.address, attempt=attempt, message=message))


def _touched(
    plan: Plan, state: State, launches: Mapping[AttemptRef, LaunchRecord]
) -> Iterator[LaunchRecord]:
    """The launches of other attempts that a plan stops, and active ones that it waits for."""
    active = {attempt.ref for attempt in state.active}
    for change in plan.changes:
        stopped = change.launch.stop if change.launch else ()
        awaited = {*change.waits_for, *(upstream.ref for upstream in change.after)}
        refs = {*(AttemptRef(change.address, number) for number in stopped), *(awaited & active)}
        yield from (launches[ref] for ref in sorted(refs) if ref in launches)


def _launches(change: Change) -> bool:
    return change.action in _LAUNCHING and change.kind is Kind.RUN


def _is_joined(change: Change) -> bool:
    return kind_named(change.backend).capabilities.joins is not None


def _launch_order(change: Change) -> tuple[str, tuple[int, ...], str]:
    return cell_order(change.address, change.launch.inputs.cell if change.launch else None)


def _attempt_number(change: Change) -> int:
    if change.attempt is not None:
        return change.attempt
    return change.prior.attempt if change.prior else 0
