"""The live side: what the backends say of attempts that are recorded as active, and the state as it
will be once what a crash left open is settled. Nothing here writes."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from sgpu_decl.backends.base import Backend
from sgpu_decl.model.attempt import AttemptRef, AttemptState, FailureClass
from sgpu_decl.model.attempt_view import AttemptView
from sgpu_decl.model.launch import LaunchRecord
from sgpu_decl.model.state import Attempt, Intent, Resource, State

if TYPE_CHECKING:
    from sgpu_decl.facts.job_spec import JobBackends

__all__ = [
    "Backends",
    "being_launched",
    "believe_intents",
    "believe_orphans",
    "lost",
    "made_by_intent",
    "observe",
    "recorded_resource",
    "was_staged",
]

Backends = Callable[[str], Backend]


def observe(state: State, backends: Backends) -> dict[AttemptRef, AttemptView]:
    """Ask each backend about the attempts that are recorded as active.

    One that its backend no longer knows is lost: it was active when last seen. So is one that is
    staged only: it is recorded once its supervisor is up, so a power cut took that back.
    """
    seen: dict[AttemptRef, AttemptView] = {}
    launching = being_launched(state)
    by_backend: dict[str, list[LaunchRecord]] = {}
    for attempt in state.active:
        by_backend.setdefault(attempt.backend, []).append(state.launch_of(attempt))
    for kind, records in by_backend.items():
        known = backends(kind).attempts.look(records)
        for record in records:
            view = known.get(record.ref)
            up = view is not None and view.state is not AttemptState.STAGING
            seen[record.ref] = view if view and (up or record.ref in launching) else lost(record)
    return seen


def being_launched(state: State) -> frozenset[AttemptRef]:
    """The attempts whose launch is not known to be over."""
    return frozenset(intent.launch.ref for intent in state.intents if intent.launch is not None)


def lost(record: LaunchRecord) -> AttemptView:
    """An attempt of which nothing is left that could tell how it ended."""
    return AttemptView(
        ref=record.ref,
        backend=record.backend,
        state=AttemptState.LOST,
        failure=FailureClass.SUPERVISOR_LOST,
    )


def believe_intents(state: State, backends: Backends, job_backends: "JobBackends") -> State:
    """The state as it will be once open intents are settled: a plan sees no effect twice."""
    resources = dict(state.resources)
    active = list(state.active)
    for intent in state.intents:
        made = made_by_intent(intent, job_backends)
        if made is not None:
            resources[intent.address] = made
        launch, attempt = intent.launch, intent.attempt_record
        if launch is None or attempt is None or not was_staged(launch, backends):
            continue
        known = resources.get(intent.address)
        resources[intent.address] = recorded_resource(intent, attempt, known)
        active.append(attempt)
    return replace(state, resources=resources, active=tuple(active))


def believe_orphans(state: State, orphans: Sequence[Attempt]) -> State:
    """The state with attempts that still run though their folders, and maybe the state, were
    deleted."""
    resources, active = dict(state.resources), list(state.active)
    for attempt in orphans:
        address = attempt.ref.address
        known = resources.get(address)
        if known is not None and known.last is not None and known.numbered >= attempt.ref.number:
            continue
        resources[address] = Resource(
            address=address,
            backend=attempt.backend,
            owner=known.owner if known else "",
            spec=attempt.inputs.spec,
            last=attempt,
            numbered=attempt.ref.number,
        )
        active.append(attempt)
    return replace(state, resources=resources, active=tuple(active))


def recorded_resource(intent: Intent, attempt: Attempt, known: Resource | None) -> Resource:
    """The resource that an intent creates once it is known to have happened."""
    return Resource(
        address=intent.address,
        backend=attempt.backend,
        owner=known.owner if known else intent.owner,
        spec=attempt.inputs.spec,
        last=attempt,
    )


def was_staged(launch: LaunchRecord, backends: Backends) -> bool:
    return backends(launch.backend).launcher.staged(launch)


def made_by_intent(intent: Intent, job_backends: "JobBackends") -> Resource | None:
    """The job that an intent made, if it is one of a job and made it."""
    if intent.job is None:
        return None
    from sgpu_decl.facts.job_spec import made_by

    return made_by(intent, job_backends)
