"""The live side: what the backends say of attempts that are recorded as active, and what became of
intents that a crash left open."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from sgpu_decl.applying.recording import recorded_resource
from sgpu_decl.backends.base import Backend, Launching
from sgpu_decl.diagnostics.diagnostic import Diagnostic, Severity
from sgpu_decl.errors import OutcomeUnknown, SgpuError
from sgpu_decl.model.attempt import AttemptRef, AttemptState, AttemptStatus, FailureClass
from sgpu_decl.model.plan import Action
from sgpu_decl.model.state import Attempt, Intent, Resource, State
from sgpu_decl.storing.store import StateWriter

if TYPE_CHECKING:
    from sgpu_decl.applying.jobs.desiring import Keepers

__all__ = [
    "being_launched",
    "believe_intents",
    "lost",
    "observe",
    "refresh",
    "settle_intents",
]

Backends = Callable[[str], Backend]


def observe(state: State, backends: Backends) -> dict[AttemptRef, AttemptStatus]:
    """Ask each backend about the attempts that are recorded as active.

    One that its backend no longer knows is lost: it was active when last seen. So is one that is
    staged only: it is recorded once its supervisor is up, so a power cut took that back.
    """
    seen: dict[AttemptRef, AttemptStatus] = {}
    launching = being_launched(state)
    by_backend: dict[str, list[AttemptRef]] = {}
    for attempt in state.active:
        by_backend.setdefault(attempt.backend, []).append(attempt.ref)
    for kind, refs in by_backend.items():
        known = backends(kind).read(refs)
        for ref in refs:
            status = known.get(ref)
            up = status is not None and status.state is not AttemptState.STAGING
            seen[ref] = status if status and (up or ref in launching) else lost(ref)
    return seen


def being_launched(state: State) -> frozenset[AttemptRef]:
    """The attempts whose launch is not known to be over."""
    return frozenset(
        intent.attempt_record.ref for intent in state.intents if intent.attempt_record is not None
    )


def lost(ref: AttemptRef) -> AttemptStatus:
    """An attempt of which nothing is left that could tell how it ended."""
    return AttemptStatus(ref=ref, state=AttemptState.LOST, failure=FailureClass.SUPERVISOR_LOST)


def believe_intents(state: State, backends: Backends, keepers: "Keepers") -> State:
    """The state as it will be once open intents are settled: a plan sees no effect twice."""
    resources = dict(state.resources)
    active = list(state.active)
    for intent in state.intents:
        made = _made(intent, keepers)
        if made is not None:
            resources[intent.address] = made
        attempt = intent.attempt_record
        if attempt is None or not backends(attempt.backend).staged(attempt.ref, intent.token):
            continue
        known = resources.get(intent.address)
        resources[intent.address] = recorded_resource(intent, attempt, known)
        active.append(attempt)
    return replace(state, resources=resources, active=tuple(active))


def settle_intents(
    writer: StateWriter, backends: Backends, keepers: "Keepers"
) -> tuple[AttemptRef, ...]:
    """Finish or drop what a crash left open; returns the attempts that were finished.

    A staged attempt is launched again with its token, which starts nothing twice; one that was not
    staged never happened. A job that was made is recorded.
    """
    settled = []
    for intent in sorted(writer.state.intents, key=lambda it: str(it.address)):
        made = _made(intent, keepers)
        if made is not None:
            writer.made(intent, made)
            continue
        attempt = intent.attempt_record
        if attempt is None or not backends(attempt.backend).staged(attempt.ref, intent.token):
            writer.abandon(intent)
            continue
        backend, again = backends(attempt.backend), _again(writer.state, intent, attempt)
        try:
            backend.stage(again)  # once more, since a power cut may have torn what is not synced
            backend.launch(again)
        except OutcomeUnknown:
            continue  # it may be there: no other is launched in its place
        except SgpuError:
            # Nothing was started and nothing is left (a secret that this shell lacks, say): the
            # next plan decides anew, and no other run is held up.
            writer.abandon(intent)
            continue
        known = writer.state.resources.get(intent.address)
        writer.launched(intent, recorded_resource(intent, attempt, known), attempt)
        if intent.action == Action.REPLACE:
            for older in writer.state.active:
                if older.ref.address == intent.address and older.ref != attempt.ref:
                    backends(older.backend).cancel(older.ref)
        settled.append(attempt.ref)
    return tuple(settled)


def _made(intent: Intent, keepers: "Keepers") -> Resource | None:
    """The job that an intent made, if it is one of a job and made it."""
    if intent.resource_record is None:
        return None
    from sgpu_decl.applying.jobs.settling import made_by

    return made_by(intent, keepers)


def refresh(writer: StateWriter, backends: Backends) -> tuple[Diagnostic, ...]:
    """Record what ended since the last look, in one step, and stop what the lost ones left.

    Returns:
        What was noticed about environments that were written to.
    """
    state = writer.state
    observed = observe(state, backends)
    ended = [
        attempt.seen_as(observed[attempt.ref])
        for attempt in state.active
        if not observed[attempt.ref].state.active
    ]
    freed: set[str] = set()
    for attempt in ended:
        if attempt.state is AttemptState.LOST:
            backends(attempt.backend).sweep(attempt.ref)
        resource = state.resources.get(attempt.ref.address)
        if resource is not None and resource.gone:
            backends(attempt.backend).unstage(attempt.ref)
            freed.add(attempt.backend)
    for kind in freed:
        backends(kind).tidy()
    if ended:
        writer.record_attempts(ended)
    used = {(it.backend, it.environment_digest): it.ref for it in ended if it.environment_digest}
    return tuple(
        _written_to(ref, paths)
        for (kind, digest), ref in used.items()
        if digest and (paths := backends(kind).examine(digest))
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


def _again(state: State, intent: Intent, attempt: Attempt) -> Launching:
    return Launching(
        ref=attempt.ref,
        token=intent.token,
        lineage=state.lineage,
        spec=attempt.spec,
        owner=intent.owner,
        code_digest=attempt.code_digest,
        environment_digest=attempt.environment_digest,
        pool=attempt.pool,
    )
