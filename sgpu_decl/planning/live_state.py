"""What the backends say of active attempts, and the state as it will be once the open intents of a
crash are settled. Nothing here writes."""

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from sgpu_decl.backends.base import Attempts, Backend, Elsewhere
from sgpu_decl.errors import BackendError
from sgpu_decl.model.attempt import AttemptRef, AttemptState, FailureClass
from sgpu_decl.model.attempt_view import AttemptView
from sgpu_decl.model.launch import LaunchRecord
from sgpu_decl.model.state import Attempt, Intent, Resource, State

if TYPE_CHECKING:
    from sgpu_decl.planning.job_spec import JobBackends

Backends = Callable[[str], Backend]


def observe(
    state: State, backends: Backends, among: Collection[AttemptRef] | None = None
) -> dict[AttemptRef, AttemptView]:
    """Ask each backend about the attempts that are recorded as active, or about those `among` them.

    An attempt that its backend no longer knows is lost, since it was active when last seen. One
    that is only staged is lost too: it was recorded when its supervisor was running, so a power cut
    has undone its start. One that cannot be asked from here is as it was recorded.
    """
    views: dict[AttemptRef, AttemptView] = {}
    in_launch = refs_in_launch(state)
    by_backend: dict[str, dict[AttemptRef, Attempt]] = {}
    for attempt in state.active:
        if among is not None and attempt.ref not in among:
            continue
        by_backend.setdefault(attempt.backend, {})[attempt.ref] = attempt
    for kind, recorded in by_backend.items():
        attempts = backends(kind).attempts
        records = [state.launch_of(attempt) for attempt in recorded.values()]
        answers = attempts.look(records)
        for record in records:
            view = answers.get(record.ref)
            started = view is not None and view.state is not AttemptState.STAGING
            is_there = view is not None and (started or record.ref in in_launch)
            if view is not None and is_there:
                views[record.ref] = view
            elif (elsewhere := attempts.elsewhere(record)) is not None:
                views[record.ref] = unseen(recorded[record.ref], record, elsewhere, attempts)
            else:
                views[record.ref] = lost(record)
    return views


def refs_in_launch(state: State) -> frozenset[AttemptRef]:
    """The attempts whose launch is not known to be over."""
    return frozenset(intent.launch.ref for intent in state.intents if intent.launch is not None)


def lost(record: LaunchRecord) -> AttemptView:
    """The view of an attempt that left nothing behind that says how it ended."""
    return AttemptView(
        ref=record.ref,
        backend=record.backend,
        state=AttemptState.LOST,
        failure=FailureClass.SUPERVISOR_LOST,
    )


def as_recorded(
    attempt: Attempt, unavailable: str | None, way_out: str | None = None
) -> AttemptView:
    """The view of an attempt that is not asked about: as it was recorded last. `unavailable` says
    why, if its backend cannot be asked from here, and `way_out` the next step."""
    return AttemptView(
        ref=attempt.ref,
        backend=attempt.backend,
        state=attempt.state,
        started_at=attempt.started_at,
        ended_at=attempt.ended_at,
        exit_code=attempt.exit_code,
        failure=attempt.failure,
        unavailable=unavailable,
        way_out=way_out,
        unknown_since=attempt.recorded_at if unavailable is not None else None,
    )


def unseen(
    attempt: Attempt, record: LaunchRecord, elsewhere: Elsewhere, attempts: Attempts
) -> AttemptView:
    """The view of an attempt that cannot be asked from here. It is active no longer than its own
    limits allow, whoever sees it."""
    known = as_recorded(attempt, elsewhere.reason, elsewhere.hint)
    view = replace(known, hidden_from=elsewhere.hidden_from)
    if not attempt.state.active:
        return view
    ended = elsewhere.ended
    if not ended and (limit := attempts.time_limit(record)) is not None:
        ended = datetime.now(UTC) - attempt.recorded_at > timedelta(seconds=limit)
    return replace(view, state=AttemptState.LOST, overdue=True) if ended else view


def require_here(record: LaunchRecord, backends: Backends, what: str) -> None:
    """Refuse an attempt that cannot be asked from here.

    Args:
        what: what cannot be done with it, for the message: "cannot be stopped".

    Raises:
        BackendError: it can be asked elsewhere alone.
    """
    elsewhere = backends(record.backend).attempts.elsewhere(record)
    if elsewhere is not None:
        error = BackendError(
            f"`{record.ref}` {what}: {elsewhere.reason}",
            hint=elsewhere.hint,
            code="launched_elsewhere",
        )
        error.retryable = elsewhere.retryable
        raise error


def require_answer(view: AttemptView) -> None:
    """Refuse an active attempt whose platform does not answer, of which more is wanted than what
    was recorded.

    Raises:
        BackendError: it cannot be asked now.
    """
    if view.unavailable is not None and view.state.active:
        raise unanswered(view)


def unanswered(view: AttemptView) -> BackendError:
    """The error of a platform that does not answer about an attempt."""
    error = BackendError(
        f"`{view.ref}` cannot be asked now: {view.unavailable}",
        hint=view.way_out,
        code="host_unreachable",
    )
    error.retryable = True
    return error


def is_unreachable(error: BackendError) -> bool:
    """Whether nothing answered where a platform was, which may be gone for good."""
    return error.code == "host_unreachable" and error.retryable


@contextmanager
def naming_way_out(record: LaunchRecord, *, ended: bool = False) -> Iterator[None]:
    """Say in the hint of an error, where a platform does not answer about an attempt, what is to be
    done if it never will again."""
    try:
        yield
    except BackendError as error:
        if not is_unreachable(error):
            raise
        gone = (
            f"`sgpu state rm {record.ref.address}` removes the run from the state and stops nothing"
        )
        if ended:
            gone = (
                "so are the files that were not fetched, and "
                f"`sgpu show '{record.ref}'` shows its record"
            )
        raised = BackendError(
            error.message,
            hint=". ".join(filter(None, [error.hint, f"If that is gone for good, {gone}"])),
            code=error.code,
        )
        raised.retryable = True
        raise raised from error


def believe_intents(state: State, backends: Backends, job_backends: "JobBackends") -> State:
    """The state as it will be once open intents are settled: a plan sees no effect twice."""
    resources = dict(state.resources)
    active = list(state.active)
    for intent in state.intents:
        job = made_by_intent(intent, job_backends)
        if job is not None:
            resources[intent.address] = job
        launch, attempt = intent.launch, intent.attempt_record
        if launch is None or attempt is None:
            continue
        if began_elsewhere(launch, backends) is None and not was_staged(launch, backends):
            continue
        before = resources.get(intent.address)
        resources[intent.address] = recorded_resource(intent, attempt, before)
        active.append(attempt)
    return replace(state, resources=resources, active=tuple(active))


def believe_orphans(state: State, orphans: Sequence[Attempt]) -> State:
    """The state with attempts that still run although somebody deleted their folders, and perhaps
    the state."""
    resources, active = dict(state.resources), list(state.active)
    for attempt in orphans:
        address = attempt.ref.address
        before = resources.get(address)
        if before is not None and before.last is not None and before.numbered >= attempt.ref.number:
            continue
        resources[address] = Resource(
            address=address,
            backend=attempt.backend,
            owner=before.owner if before else "",
            spec=attempt.inputs.spec,
            last=attempt,
            numbered=attempt.ref.number,
        )
        active.append(attempt)
    return replace(state, resources=resources, active=tuple(active))


def recorded_resource(intent: Intent, attempt: Attempt, before: Resource | None) -> Resource:
    """The resource that an intent creates once it is known to have happened."""
    return Resource(
        address=intent.address,
        backend=attempt.backend,
        owner=before.owner if before else intent.owner,
        spec=attempt.inputs.spec,
        last=attempt,
    )


def was_staged(launch: LaunchRecord, backends: Backends) -> bool:
    return backends(launch.backend).launcher.staged(launch)


def began_elsewhere(launch: LaunchRecord, backends: Backends) -> Elsewhere | None:
    """Why only another machine, or another user, can find out how far a launch got; None if that
    can be found out here."""
    return backends(launch.backend).attempts.elsewhere(launch)


def made_by_intent(intent: Intent, job_backends: "JobBackends") -> Resource | None:
    """The job that an intent has created; `None` if it has not, or is not about a job."""
    if intent.job is None:
        return None
    from sgpu_decl.planning.job_spec import made_by

    return made_by(intent, job_backends)
