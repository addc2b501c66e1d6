"""Carrying a prepared plan out: stage, intent, launch, record."""

import time
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import replace
from functools import partial

from sgpu_decl.applying.apply_lock import ApplyLock
from sgpu_decl.applying.apply_result import Applied
from sgpu_decl.applying.environment_staging import stage_environments
from sgpu_decl.applying.executor import execute
from sgpu_decl.applying.launch_records import unrecorded
from sgpu_decl.applying.moves import move_renamed
from sgpu_decl.applying.recovery import has_loose_ends, refresh, settle_intents, stop_awaited
from sgpu_decl.applying.release import record_references, release_destroyed
from sgpu_decl.diagnostics.diagnostic import Diagnostic
from sgpu_decl.errors import BackendError, OutOfTime, SgpuError, StalePlan, StateMoved
from sgpu_decl.model.call import Call
from sgpu_decl.model.event import ApplyEvent, Step
from sgpu_decl.model.launch import LaunchRecord
from sgpu_decl.model.plan import Plan
from sgpu_decl.model.state import State
from sgpu_decl.model.step_progress import Progress, Quiet
from sgpu_decl.planner.jobs.launched_run import launches_of
from sgpu_decl.planner.needs import needs_of
from sgpu_decl.planner.plan_json import plan_id
from sgpu_decl.planning.pinned_content import pin_code
from sgpu_decl.planning.prepared import Prepared
from sgpu_decl.planning.project import Project, now
from sgpu_decl.planning.review import check_reviewed, source_of
from sgpu_decl.runs.project_runs import ProjectRuns
from sgpu_decl.storing.state_folder import reserve_space
from sgpu_decl.storing.state_store import StateStore, StateWriter


def stage(
    project: Project, prepared: Prepared, progress: Progress | None = None
) -> tuple[Prepared, tuple[Diagnostic, ...]]:
    """Store the code and the environments that a plan launches, and copy them to where ranks look
    for them.

    Returns:
        The plan, which is staged now, and warnings.

    Raises:
        StalePlan: what is here now is not what was planned.
        SgpuError: it cannot be stored or built.
    """
    plan = prepared.plan
    if prepared.staged or not any(change.launch for change in plan.changes):
        return prepared, ()
    pin_code(project, plan, prepared.code, progress)
    noticed = stage_environments(project, plan, prepared.environments, progress)
    return replace(prepared, staged=True), noticed


def apply(
    project: Project,
    prepared: Prepared,
    *,
    sink: Callable[[ApplyEvent], None],
    parallelism: int,
    call: Call | None,
    on_wait: Callable[[], None],
    reviewed: bool = False,
    progress: Progress | None = None,
) -> Applied:
    """Carry a plan out; see `Session.apply`."""
    idle = all(change.idle for change in prepared.plan.changes)
    if idle and not has_loose_ends(project):
        return Applied()
    staged, _ = stage(project, prepared)
    plan = staged.with_commit().plan
    identity = plan_id(plan)

    wait = partial(_await_ends, project, on_wait=on_wait, progress=progress or Quiet())
    with ApplyLock(project, plan.lineage, on_wait) as lock:

        def without_lock(records: Collection[LaunchRecord]) -> StateWriter:
            lock.give_back()
            wait(records)
            return lock.take_again()

        state = _fresh_state(plan, identity, lock.writer, project.states)
        asked = stop_awaited(state, project.backend)
        for record in asked:
            sink(ApplyEvent(step=Step.STOPPED, address=record.ref.address, attempt=record.ref))
        if asked and (idle or _touches_begun(plan, state)):
            lock.give_back()
            with suppress(BackendError):  # what goes on stays as it is
                wait(asked)
            lock.take_again()
            asked = []
            state = _fresh_state(plan, identity, lock.writer, project.states)
        launches = project.believed(state).launches()
        open_still = settle_intents(lock.writer, project.backend, project.job_backend)
        refresh(lock.writer, project.backend)
        if idle:
            return Applied(unrecorded=open_still)
        # Now all attempts are recorded, also that of a launch before a crash.
        shown = check_reviewed(project, staged, lock.writer.state) if reviewed else ()
        if (source := source_of(plan, shown)) is not None:
            lock.attribute(source)
        move_renamed(plan, lock.writer, project.backend, sink)
        launched = [inputs for item in plan.changes if item.stages for inputs in launches_of(item)]
        needs = needs_of(lock.writer.state, launched)
        # Before any launch: gc keeps what a launch needs, even if this process is killed after it.
        record_references(project, plan.lineage, needs)
        reserve_space(project.state_dir)
        applied = execute(
            plan,
            plan_id=identity,
            writer=lock.writer,
            launches=launches,
            backends=project.backend,
            job_backends=project.job_backend,
            sink=sink,
            clock=now,
            parallelism=parallelism,
            without_lock=without_lock,
            call=call,
            progress=progress,
        )
        try:
            if asked and lock.is_held:
                writer = without_lock(asked)
                open_still = settle_intents(writer, project.backend, project.job_backend)
        except SgpuError as error:
            applied = _noting(applied, error)
        applied = replace(applied, unrecorded=(*open_still, *applied.unrecorded))
        try:
            if lock.is_held and (needs_now := needs_of(lock.writer.state)) != needs:
                record_references(project, plan.lineage, needs_now)
        except SgpuError as error:
            applied = _noting(applied, error)
    project.close_tracked()
    try:
        left = release_destroyed(project, plan)
    except SgpuError as error:
        return _noting(applied, error)
    return replace(applied, unrecorded=(*applied.unrecorded, *left))


def _touches_begun(plan: Plan, state: State) -> bool:
    """Whether a plan is about runs whose launch an earlier apply began, or comes after them."""
    changes = [change for change in plan.changes if not change.idle]
    touched = {change.address for change in changes}
    touched |= {upstream.address for change in changes for upstream in change.after}
    return any(intent.address in touched for intent in state.intents)


def _await_ends(
    project: Project,
    records: Collection[LaunchRecord],
    *,
    on_wait: Callable[[], None],
    progress: Progress,
) -> None:
    """Wait until attempts that were asked to stop have ended, or have had the time to."""
    runs, began = ProjectRuns(project), time.monotonic()
    runs.remember(records)
    refs = [record.ref for record in records]
    end_silent = runs.forced_stops(refs, lambda _: None)

    def look() -> None:
        on_wait()
        end_silent()
        progress.advance("stopping", int(time.monotonic() - began), int(_STOPPING))

    with suppress(OutOfTime):
        runs.wait(refs, timeout=_STOPPING, tick=look)


def _noting(applied: Applied, error: SgpuError) -> Applied:
    """What was launched counts, and an error after that is noted; without a launch it is raised."""
    if not applied.launched:
        raise error
    missing = (*applied.unrecorded, unrecorded(error))
    return replace(applied, unrecorded=tuple(dict.fromkeys(missing)))


_STOPPING = 600.0  # seconds that a replaced attempt may take to stop
_LOG = 64  # entries of a shared state that are looked at first
_HARMLESS = frozenset({"lock", "record_attempts", "unlock"})


def _fresh_state(plan: Plan, identity: str, writer: StateWriter, states: StateStore) -> State:
    """The state, which is the one that was planned for.

    Raises:
        StalePlan: it is not, or the plan was applied already.
    """
    if writer.applied(identity):
        raise StalePlan("this plan was applied already", hint="plan again", code="plan_applied")
    state = writer.state
    if plan.lineage != state.lineage and plan.serial == 0:
        raise StateMoved(
            "another sgpu has applied here for the first time since this plan",
            hint="plan again",
            code="other_lineage",
        )
    if plan.lineage != state.lineage:
        raise StalePlan(
            "this plan was made for another state",
            hint="apply it in the project it was made for, or plan again",
            code="other_lineage",
        )
    if plan.serial != state.serial and not _only_ends_since(plan.serial, states):
        raise StateMoved(
            f"the state moved on since this plan (serial {plan.serial}, now {state.serial})",
            hint="plan again",
        )
    return state


def _only_ends_since(serial: int, states: StateStore) -> bool:
    """Whether nothing but ends of attempts was recorded since a plan, as whoever sees one does: an
    apply records them itself before it goes on."""
    most = _LOG
    while True:  # so many entries that one of them is as old as the plan
        log = states.log(most) or ()
        newer = [entry for entry in log if entry.serial > serial]
        if any(change.op not in _HARMLESS for entry in newer for change in entry.changes):
            return False
        if len(newer) < len(log) or len(log) < most:
            return len(newer) < len(log)
        most *= 4
