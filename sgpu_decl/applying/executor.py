"""The walk over a plan's changes: intent, stage and launch, record. Nothing is decided here."""

from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from itertools import takewhile

from sgpu_decl.applying.apply_result import Applied, ApplyLog, Sink
from sgpu_decl.applying.error_places import with_place
from sgpu_decl.applying.held_launches import (
    launch_held,
    launched_by_others,
    must_end,
    require_unmoved,
    stale,
    waits_itself,
)
from sgpu_decl.applying.intent_ends import IntentEnds
from sgpu_decl.applying.job_changes import Jobs
from sgpu_decl.applying.launch_group import (
    BegunLaunch,
    GroupLaunch,
    LaunchGroup,
    LaunchProgress,
    joined_records,
    next_window,
    stage_and_launch,
    with_arrays,
)
from sgpu_decl.applying.launch_records import (
    launch_of,
    never_recorded,
    resource_of,
    unrecorded,
    upstreams_of,
)
from sgpu_decl.applying.recovery import refresh
from sgpu_decl.applying.state_changes import StateChanges
from sgpu_decl.backends.base import Backend, Launcher
from sgpu_decl.backends.launch_request import LaunchRequest
from sgpu_decl.errors import BackendError, Interrupted, OutcomeUnknown, SgpuError
from sgpu_decl.model.address import Address, Kind, cell_order
from sgpu_decl.model.attempt import AttemptRef
from sgpu_decl.model.backend_kinds import kind_named
from sgpu_decl.model.call import Call
from sgpu_decl.model.event import Step
from sgpu_decl.model.launch import LaunchRecord
from sgpu_decl.model.plan import Action, Change, Plan
from sgpu_decl.model.state import Intent, IntentEnd, State
from sgpu_decl.model.step_progress import Progress, Quiet
from sgpu_decl.planner.run_order import launch_groups, launch_levels
from sgpu_decl.planning.job_spec import JobBackends
from sgpu_decl.planning.live_state import require_here
from sgpu_decl.storing.state_store import LOST, StateWriter

Clock = Callable[[], datetime]
Backends = Callable[[str], Backend]
WithoutLock = Callable[[Collection[LaunchRecord]], StateWriter]
"""Gives the state lock back until attempts that were asked to stop have ended, or have had the time
to, and takes it again."""
_LAUNCHING = (Action.CREATE, Action.REPLACE)
_WINDOW = 4
"""How many intents are open at most when others are opened, for each launch that overlaps."""


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
    without_lock: WithoutLock,
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

    A launch that replaces attempts, on a backend that cannot let it wait, is staged, and launched
    once they have ended, under a lock that is taken anew. Its intent is open meanwhile: that is how
    an apply after a crash knows of it, and how this one sees that nobody else has touched the run.

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
    groups = with_arrays(
        groups,
        lambda change: backends(change.backend).launcher.array_of(
            LaunchRequest(
                record=records[change.address],
                after=upstreams_of(records[change.address], known),
                call=call,
            )
        ),
    )
    for group in groups:
        joined = joined_records([records[change.address] for change in group])
        for change in group:
            record = records[change.address]
            backends(change.backend).launcher.check(
                LaunchRequest(
                    record=record,
                    waits_for=writer.state.earlier(record),
                    after=upstreams_of(record, known),
                    group=joined,
                    call=call,
                )
            )
    for record in _touched(plan, writer.state, launches):
        require_here(record, backends, "can neither be stopped nor waited for from here")
    writer.record_packages(plan.package_lists)
    log = ApplyLog(sink=sink)
    jobs = Jobs(
        writer=writer, state=writer.state, backends=job_backends, plan_id=plan_id, clock=clock
    )
    changes = StateChanges(writer=writer, launches=launches, backends=backends, jobs=jobs, log=log)
    walk = _Walk(
        plan=plan,
        plan_id=plan_id,
        writer=writer,
        planned=writer.state,
        state=writer.state,
        known=known,
        backends=backends,
        changes=changes,
        log=log,
        clock=clock,
        call=call,
        progress=LaunchProgress(progress or Quiet()),
        ends=IntentEnds(writer),
    )
    changes.stop_all(change for change in plan.changes if change.action is Action.DESTROY)
    for change in plan.changes:
        if not _launches(change):
            changes.carry_out(change)
    left = walk.launch_all(groups, parallelism)
    while walk.held or left:
        if walk.held:
            try:
                writer = without_lock(walk.awaited())
            except Interrupted:
                raise
            except SgpuError as error:
                walk.give_up(left, error)
                return log.applied()
            walk.resume(writer, parallelism)
        left = walk.launch_all(left, parallelism)
    walk.finish()
    return log.applied()


@dataclass(slots=True, kw_only=True)
class _Walk:
    plan: Plan
    plan_id: str
    writer: StateWriter
    planned: State  # before the walk: each change touches its own address alone
    state: State  # the same, or that since the lock was taken again
    known: Mapping[AttemptRef, LaunchRecord]  # those before the walk, and all of the plan
    backends: Backends
    changes: StateChanges
    log: ApplyLog
    clock: Clock
    call: Call | None
    progress: LaunchProgress
    ends: IntentEnds
    staged: list[Intent] = field(default_factory=list)
    held: list[LaunchGroup] = field(default_factory=list)

    def finish(self) -> None:
        """Record that the plan was applied, and what the store did not take before. What was
        launched, and why something was not, counts whether that works or not."""
        self._record_ends(())
        try:
            self.writer.plan_applied(self.plan_id)
        except SgpuError as error:
            if not (self.log.launched or self.log.failed):
                raise
            self.log.unrecorded.append(unrecorded(error))
        if self.ends.error is not None:
            self.log.unpushed = self.ends.keep()
            if self.log.unpushed is None:
                self.log.unrecorded.append(unrecorded(self.ends.error))

    def launch_all(
        self, groups: Iterable[tuple[Change, ...]], parallelism: int
    ) -> list[tuple[Change, ...]]:
        """Launch groups of changes, each of which is started as one. Intents are committed and
        closed by this thread alone, in the order of the groups: a window of them in one step, and
        in another all that have ended meanwhile. Only staging and launching overlap.

        Returns:
            Those that are not begun: they come after one that is held.
        """
        left, later = deque[tuple[Change, ...]](), list[tuple[Change, ...]]()
        held: set[Address] = set()
        for changes in groups:
            behind = any(upstream.address in held for one in changes for upstream in one.after)
            (later if behind else left).append(changes)
            if behind or must_end(changes, self.state):
                held.update(change.address for change in changes)
        running: deque[tuple[GroupLaunch, LaunchGroup]] = deque()
        last_queued: GroupLaunch | None = None
        with ThreadPoolExecutor(max_workers=parallelism) as pool:
            try:
                while left or running:
                    if len(running) <= parallelism:
                        active = [one.change.address for _, group in running for one in group.begun]
                        window = next_window(left, active, _WINDOW * parallelism)
                        for begun in self._begin(window):
                            group = LaunchGroup(
                                begun=begun,
                                requests=[self._request(one, begun) for one in begun],
                                launcher=self.backends(begun[0].change.backend).launcher,
                                must_end=must_end([one.change for one in begun], self.state),
                            )
                            in_line = any(map(group.launcher.may_queue, group.requests))
                            before = last_queued if in_line else None
                            check = partial(self._check_held, begun)
                            started = pool.submit(stage_and_launch, group, before, check)
                            if in_line:
                                last_queued = started
                            running.append((started, group))
                    self._close_ended(running)
            except BaseException:
                for started, _ in running:  # what was not started is dropped by the next apply
                    started.cancel()
                raise
        return later

    def _hold(self, group: LaunchGroup) -> None:
        """Ask the attempts that a staged group replaces to stop, and keep it for `resume`."""
        self._check_held(group.begun)
        try:
            for one in group.begun:
                self.changes.stop(one.change)
        except BackendError:
            group.unstage()
            raise
        self.held.append(group)

    def awaited(self) -> list[LaunchRecord]:
        """The launches of the attempts that have to end before those that are held."""
        refs = {ref for group in self.held for ref in group.must_end}
        self.state = self.writer.state  # as it is when the lock is given back
        return [self.state.launch_of(item) for item in self.state.active if item.ref in refs]

    def resume(self, writer: StateWriter, parallelism: int) -> None:
        """Launch what was held, under a lock that was taken anew, where the run is as it was left.

        Ends are recorded before. So somebody else who was killed when it launched one of these has
        moved the state, and then this process does not know any more that nothing was started.
        """
        held, self.held, before = self.held, [], self.state
        self.writer = self.ends.writer = self.changes.writer = writer
        moved = writer.state.serial != before.serial
        try:
            refresh(writer, self.backends, {ref for group in held for ref in group.must_end})
        except BackendError as error:  # the intents stay open: the next apply looks again
            for one in (one for group in held for one in group.begun):
                self.log.fail(one.change, error, one.launch.ref)
            held = []
        self.state = writer.state
        active = {item.ref for item in self.state.active}
        running: deque[tuple[GroupLaunch, LaunchGroup]] = deque()
        with ThreadPoolExecutor(max_workers=parallelism) as pool:
            for group in held:
                launched = launched_by_others(group, self.state)
                if launched is not None:
                    self._count(group, launched)
                    continue
                check = partial(self._check_held, group.begun)
                started = pool.submit(launch_held, group, active, check, moved=moved)
                running.append((started, group))
            while running:
                self._close_ended(running)

    def _count(self, group: LaunchGroup, launched: Sequence[bool]) -> None:
        """Note what became of launches that were held, and that others have dealt with."""
        for one, is_launched in zip(group.begun, launched, strict=True):
            if is_launched:
                self.log.launched.append(one.launch.ref)
                self.log.tell(one.change, Step.LAUNCHED, one.launch.ref)
            else:
                self.log.fail(one.change, stale(one.change), one.launch.ref)

    def give_up(self, left: Iterable[tuple[Change, ...]], error: SgpuError) -> None:
        """Leave what is not launched to the next apply, as the lock could not be taken again: the
        intents of what is held stay open."""
        for one in (one for group in self.held for one in group.begun):
            self.log.fail(one.change, error, one.launch.ref)
        for change in (change for group in left for change in group):
            self.log.fail(change, error)

    def _request(self, one: BegunLaunch, group: Sequence[BegunLaunch]) -> LaunchRequest:
        return LaunchRequest(
            record=one.launch,
            waits_for=self.state.earlier(one.launch),
            after=upstreams_of(one.launch, self.known),
            group=joined_records([other.launch for other in group]),
            call=self.call,
            git=self.plan.git.of_launch if self.plan.git else {},
            progress=self.progress.of(one.launch.ref),
        )

    def _require_upstreams(self, change: Change) -> None:
        """Refuse a launch that would wait for one that did not happen."""
        if not change.after:
            return
        failed = {address for address, _ in self.log.failed}
        for upstream in change.after:
            if upstream.address in failed:
                raise SgpuError(
                    f"`{change.address.label}` was not launched: it comes after "
                    f"`{upstream.address.label}`, which could not be launched",
                    hint=f"fix `{upstream.address.label}`, and apply again",
                    code="upstream_failed",
                )

    def _begin(self, window: Sequence[tuple[Change, ...]]) -> list[Sequence[BegunLaunch]]:
        """Commit the intents of groups, all of them or none. Returns what was begun of each."""
        groups: list[Sequence[BegunLaunch]] = []
        for group in window:
            try:
                for change in group:
                    self._require_upstreams(change)
                    require_unmoved(change, self.planned, self.state)
                launcher = self.backends(group[0].backend).launcher
                groups.append([self._decided(change, launcher) for change in group])
            except SgpuError as error:
                for change in group:
                    self.log.fail(change, error)
        begun = [one for group in groups for one in group]
        try:
            self.writer.begin(*(one.intent for one in begun))
        except SgpuError as error:
            for one in begun:
                self.log.fail(one.change, error)
            return []
        for one in begun:
            self.log.tell(one.change, Step.STARTED, one.launch.ref)
        return groups

    def _check_held(self, begun: Sequence[BegunLaunch]) -> None:
        """Check the lock between staging and launching. What is staged and not launched keeps its
        intent: somebody else may be settling that."""
        try:
            self.writer.check_held()
        except SgpuError:
            self.staged += [one.intent for one in begun]
            raise

    def _decided(self, change: Change, launcher: Launcher) -> BegunLaunch:
        launch = launch_of(self.plan, change)
        # With the intent: whoever settles it must know where to look, and whose it is.
        function = self.call.name if self.call is not None else None
        launch = replace(
            launch,
            reference=launcher.provisional_reference(launch),
            provenance=replace(launch.provenance, function=function),
        )
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
        return BegunLaunch(change=change, launch=launch, intent=intent)

    def _close_ended(self, running: deque[tuple[GroupLaunch, LaunchGroup]]) -> None:
        """Wait for the oldest launch, and close the intents of all that have ended by then."""
        if not running:
            return
        wait([running[0][0]])
        ended: list[tuple[BegunLaunch, IntentEnd]] = []
        done = list(takewhile(lambda one: one[0].done(), running))
        launched = [group for one, group in done if not one.exception() and one.result()]
        with suppress(SgpuError):  # the end of each says it
            begun = (one.change for group in launched for one in group.begun)
            self.changes.stop_all(one for one in begun if one.action is Action.REPLACE)
        try:
            for started, group in done:
                running.popleft()
                try:
                    references = started.result()
                    if references is None:
                        self._hold(group)
                        continue
                except SgpuError as error:
                    for one in group.begun:
                        # Else the next apply looks what came of it, or completes it.
                        if not isinstance(error, OutcomeUnknown) and one.intent not in self.staged:
                            ended.append((one, IntentEnd(intent=one.intent)))
                        self._fail_launch(one, error)
                else:
                    for one, reference in zip(group.begun, references, strict=True):
                        ended.extend(self._end(one, reference))
        finally:
            self._record_ends(ended)

    def _fail_launch(self, one: BegunLaunch, error: SgpuError) -> None:
        if isinstance(error, BackendError) and error.asked_wrong:
            error = with_place(error, one.change)
        self.log.fail(one.change, error, one.launch.ref)

    def _end(
        self, one: BegunLaunch, reference: str | None
    ) -> Iterator[tuple[BegunLaunch, IntentEnd]]:
        """The end of the intent of a launch; none where it stays open."""
        change, intent = one.change, one.intent
        attempt = intent.attempt_record
        assert attempt is not None  # noqa: S101  set by _begin
        attempt = replace(attempt, reference=reference)
        resource = resource_of(change, last=attempt)
        end = IntentEnd(intent=intent, resource=resource, attempt=attempt)
        try:
            if change.action is Action.REPLACE:
                # Now that the new attempt is there, waiting for the old one to end.
                self.changes.stop(change)
        except BackendError:
            raise  # the old attempt goes on: nothing about what is recorded
        except SgpuError as error:  # the next apply stops the old attempt, as the intent is open
            self._leave_open(((one, end),), error)
        else:
            yield one, end

    def _record_ends(self, ended: Sequence[tuple[BegunLaunch, IntentEnd]]) -> None:
        try:
            self.ends.record([end for _, end in ended])
        except SgpuError as error:
            self._leave_open(ended, error)
            return
        self._tell_launched(ended)

    def _leave_open(self, ended: Sequence[tuple[BegunLaunch, IntentEnd]], error: SgpuError) -> None:
        """What was launched counts, unless somebody else may have dropped its intent."""
        if error.code not in LOST:
            self.log.unrecorded.append(unrecorded(error))
            self._tell_launched(ended)
            return
        for one, end in ended:
            if end.attempt is None:
                self.log.unrecorded.append(unrecorded(error))
            else:
                record = replace(one.launch, reference=end.attempt.reference)
                place = self.backends(record.backend).launcher.place_words(record)
                self.log.fail(one.change, never_recorded(end.attempt, place, error), record.ref)

    def _tell_launched(self, ended: Sequence[tuple[BegunLaunch, IntentEnd]]) -> None:
        refs = [(one.change, end.attempt.ref) for one, end in ended if end.attempt is not None]
        self.log.launched += [ref for _, ref in refs]
        for change, ref in refs:
            self.log.tell(change, Step.LAUNCHED, ref, waits=waits_itself(change))


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
