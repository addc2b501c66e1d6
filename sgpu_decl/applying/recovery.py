"""Recovery before a change: intents that a crash left open, and attempts that have ended."""

from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from sgpu_decl.applying.launch_records import unrecorded
from sgpu_decl.backends.launch_request import LaunchRequest
from sgpu_decl.diagnostics.diagnostic import Diagnostic, Severity
from sgpu_decl.errors import BackendError, Locked, OutcomeUnknown, SgpuError
from sgpu_decl.model.attempt import AttemptRef, AttemptState
from sgpu_decl.model.attempt_view import AttemptView
from sgpu_decl.model.backend_kinds import is_remote, kind_named
from sgpu_decl.model.launch import LaunchRecord
from sgpu_decl.model.plan import Action
from sgpu_decl.model.state import Intent, State
from sgpu_decl.planning.live_state import (
    Backends,
    began_elsewhere,
    made_by_intent,
    observe,
    recorded_resource,
    was_staged,
)
from sgpu_decl.planning.project import Project
from sgpu_decl.storing.state_store import AT_ONCE, StateWriter

if TYPE_CHECKING:
    from sgpu_decl.planning.job_spec import JobBackends


def stop_awaited(state: State, backends: Backends) -> list[LaunchRecord]:
    """Ask attempts to stop that have to end before `settle_intents` can complete what a crash left
    staged. Returns those that were asked."""
    awaited = {
        record.ref: record
        for intent in state.intents
        if (records := list(_awaited(state, intent))) and _is_left(intent, backends)
        for record in records
    }
    asked = []
    for record in awaited.values():
        with suppress(BackendError):  # the launch stays open
            backends(record.backend).launcher.cancel(record)
            asked.append(record)
    return asked


def _is_left(intent: Intent, backends: Backends) -> bool:
    """Whether it can be found out here that the launch of an intent was staged, and it was."""
    launch = intent.launch
    return (
        launch is not None
        and began_elsewhere(launch, backends) is None
        and was_staged(launch, backends)
    )


def _awaited(state: State, intent: Intent) -> Iterator[LaunchRecord]:
    """The active attempts that have to end before an intent is launched, where the backend cannot
    let a launch wait. Launches of one plan may be started as one: by whichever comes first."""
    if intent.launch is None:
        return
    capabilities = kind_named(intent.launch.backend).capabilities
    if capabilities.queues:
        return
    for other in state.intents if capabilities.joins else (intent,):
        if other.launch is not None and other.plan_id == intent.plan_id:
            yield from state.earlier(other.launch)


def settle_intents(
    writer: StateWriter, backends: Backends, job_backends: "JobBackends"
) -> tuple[Diagnostic, ...]:
    """Record what the store did not take before, then finish or drop what a crash left open.

    A staged attempt is launched again with its token, which starts nothing twice; one that was not
    staged never happened. A job that was made is recorded. Nothing is waited for: a launch stays
    open while an attempt that it replaces goes on.

    Returns:
        The launches that stay open: they may have been started, and it cannot be found out here.
    """
    writer.push_kept()
    open_still = []
    for intent in sorted(writer.state.intents, key=lambda item: str(item.address)):
        job = made_by_intent(intent, job_backends)
        if job is not None:
            writer.made(intent, job)
            continue
        launch, attempt = intent.launch, intent.attempt_record
        elsewhere = began_elsewhere(launch, backends) if launch is not None else None
        if launch is not None and elsewhere is not None:
            open_still.append(_unsettled(launch.ref, elsewhere.reason, elsewhere.hint))
            continue
        if launch is None or attempt is None or not was_staged(launch, backends):
            writer.abandon(intent)
            continue
        state = writer.state
        going_on = _going_on(writer, state, intent, backends)
        if going_on is not None:
            hint = f"apply again when `{going_on}` has ended; `sgpu show '{going_on}'` shows it"
            words = f"`{going_on}` was asked to stop, and goes on"
            open_still.append(_unsettled(launch.ref, words, hint))
            continue
        launcher = backends(launch.backend).launcher
        request = LaunchRequest(record=launch, waits_for=state.earlier(launch))
        writer.check_held()  # before: what it raises says nothing about this launch
        try:
            launcher.stage(request)  # once more, a power cut may have torn what is not synced
            attempt = replace(attempt, reference=launcher.launch(request))
        except OutcomeUnknown as error:  # it may be there: no other is launched in its place
            way_out = (
                "an apply of the user who began it settles it; if it certainly does not run, "
                f"`sgpu state rm {intent.address}` removes it from the state"
            )
            hint = "; ".join(filter(None, (error.hint, way_out)))
            open_still.append(_unsettled(attempt.ref, error.message, hint))
            continue
        except SgpuError:
            # The launcher knows that nothing was started (a secret that this shell lacks, say): the
            # next plan decides anew, and no other run is held up.
            writer.abandon(intent)
            continue
        recorded = writer.state.resources.get(intent.address)
        writer.launched(intent, recorded_resource(intent, attempt, recorded), attempt)
        if intent.action == Action.REPLACE:
            for older in writer.state.active:
                if older.ref.address == intent.address and older.ref != attempt.ref:
                    writer.check_held()
                    backends(older.backend).launcher.cancel(writer.state.launch_of(older))
    return tuple(open_still)


def _going_on(
    writer: StateWriter, state: State, intent: Intent, backends: Backends
) -> AttemptRef | None:
    """An attempt that has to end before an intent is launched, and has not. The ends of the others
    are recorded before: an apply that has given the lock back sees that this one was here."""
    refs = {record.ref for record in _awaited(state, intent)}
    if not refs:
        return None
    with suppress(BackendError):  # they are as they were recorded
        refresh(writer, backends, refs)
    return min((record.ref for record in _awaited(writer.state, intent)), default=None)


def _unsettled(ref: AttemptRef, why: str, hint: str | None) -> Diagnostic:
    """The warning about a launch that an earlier apply began."""
    return Diagnostic(
        code="launch_unsettled",
        severity=Severity.WARNING,
        summary=f"an earlier apply began to launch `{ref}`, and it is not known whether that runs: "
        f"{why}",
        hint=hint,
    )


def refresh(
    writer: StateWriter, backends: Backends, among: Collection[AttemptRef] | None = None
) -> tuple[Diagnostic, ...]:
    """Record what ended since the last look, in one step, and stop what the lost ones left.

    Args:
        among: the attempts to look at; all of them unless given.

    Returns:
        What was noticed about environments that were written to.
    """
    state = writer.state
    observed = observe(state, backends, among)
    ended = [
        attempt.seen_as(view)
        for attempt in state.active
        if (view := observed.get(attempt.ref)) is not None
        and not (view.state.active or view.overdue)
    ]
    freed: set[str] = set()
    for attempt in ended:
        storage = backends(attempt.backend).storage
        if attempt.state is AttemptState.LOST:
            storage.kill_orphans(state.launch_of(attempt))
        resource = state.resources.get(attempt.ref.address)
        if resource is not None and resource.gone:
            storage.unstage(state.launch_of(attempt))
            freed.add(attempt.backend)
    for kind in freed:
        backends(kind).storage.collect()
    if ended:
        writer.record_attempts(ended)
    used = {(item.backend, item.inputs.environment_digest): item.ref for item in ended}
    return tuple(
        _written_to(ref, paths)
        for (kind, digest), ref in used.items()
        if digest and (paths := backends(kind).storage.verify_environment(digest))
    )


def _written_to(ref: AttemptRef, paths: Sequence[str]) -> Diagnostic:
    few = ", ".join(f"`{path}`" for path in paths[:3])
    more = f" and {len(paths) - 3:,} more" if len(paths) > 3 else ""
    return Diagnostic(
        code="environment_altered",
        severity=Severity.WARNING,
        summary=f"the environment of `{ref}` was written to while it ran: {few}{more}",
        hint="the next attempt gets a new copy; write to `SGPU_OUTPUT_DIR` instead, and install "
        'with `pip install --target "$SGPU_SITE"`',
    )


def record_ended(project: Project) -> tuple[Diagnostic, ...]:
    """Record what has ended since the last look, and return what was noticed; left to the next
    command where another sgpu is at work, or the store takes nothing."""
    try:
        if not has_loose_ends(project):
            return ()
        with project.writing("record", patience=AT_ONCE) as writer:
            writer.push_kept()
            return refresh(writer, project.backend)
    except Locked:
        return ()
    except SgpuError as error:
        return (unrecorded(error),)


def record_seen(project: Project, ends: Collection[AttemptView]) -> None:
    """Record ends that a command has seen, for those who cannot see them; left to the next command
    where another sgpu is at work, or this user may not write.

    A state of one machine needs that not: whoever reads it reads the folders of attempts, too. What
    a lost attempt left on a machine is stopped by commands that change something alone.
    """
    if project.location.offline or project.shared_place is None:
        return
    refs = {
        view.ref for view in ends if view.state is not AttemptState.LOST or is_remote(view.backend)
    }
    try:
        if not refs:
            return
        with project.writing("record", patience=AT_ONCE) as writer:
            refresh(writer, project.backend, refs)
    except SgpuError:
        return


def has_loose_ends(project: Project) -> bool:
    """Whether the state has open intents, or attempts that may have ended."""
    state = project.states.read()
    return state is not None and bool(state.intents or state.active)
