"""Recovery before a change: intents that a crash left open, and attempts that have ended."""

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from sgpu_decl.backends.base import LaunchRequest
from sgpu_decl.diagnostics.diagnostic import Diagnostic, Severity
from sgpu_decl.errors import OutcomeUnknown, SgpuError
from sgpu_decl.facts.live_state import (
    Backends,
    began_elsewhere,
    made_by_intent,
    observe,
    recorded_resource,
    was_staged,
)
from sgpu_decl.model.attempt import AttemptRef, AttemptState
from sgpu_decl.model.plan import Action
from sgpu_decl.storing.state_store import StateWriter

if TYPE_CHECKING:
    from sgpu_decl.facts.job_spec import JobBackends


def settle_intents(
    writer: StateWriter, backends: Backends, job_backends: "JobBackends"
) -> tuple[Diagnostic, ...]:
    """Record what the store did not take before, then finish or drop what a crash left open.

    A staged attempt is launched again with its token, which starts nothing twice; one that was not
    staged never happened. A job that was made is recorded.

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
        launcher = backends(launch.backend).launcher
        launching = LaunchRequest(record=launch, earlier=writer.state.earlier(launch))
        writer.check_held()  # before: what it raises says nothing about this launch
        try:
            launcher.stage(launching)  # once more, a power cut may have torn what is not synced
            attempt = replace(attempt, reference=launcher.launch(launching))
        except OutcomeUnknown as error:  # it may be there: no other is launched in its place
            way_out = (
                "an apply of the user who began it settles it; if it certainly does not run, "
                f"`sgpu state rm {intent.address}` lets go of it"
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


def _unsettled(ref: AttemptRef, why: str, hint: str | None) -> Diagnostic:
    """The warning about a launch that an earlier apply began."""
    return Diagnostic(
        code="launch_unsettled",
        severity=Severity.WARNING,
        summary=f"an earlier apply began `{ref}`, and its launch stays open: {why}",
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
            storage.release_code(state.launch_of(attempt))
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
