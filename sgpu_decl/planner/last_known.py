"""The current attempts of runs: those that are recorded, corrected by what backends say now."""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from sgpu_decl.frozen_dataclass import dataclass
from sgpu_decl.model.address import Address
from sgpu_decl.model.attempt import AttemptRef
from sgpu_decl.model.attempt_view import AttemptView
from sgpu_decl.model.plan import Prior
from sgpu_decl.model.run_outputs import with_new_names
from sgpu_decl.model.state import Attempt, Resource, State
from sgpu_decl.planner.decisions import Situation, situation_of


@dataclass(frozen=True, slots=True, kw_only=True)
class CurrentAttempts:
    """`last` is the newest attempt, `active` every one that is active now, oldest first. `unseen`
    are the views of those that cannot be asked from here, and are not known to have ended."""

    resource: Resource | None = None
    last: Attempt | None = None
    active: tuple[Attempt, ...] = ()
    unseen: tuple[AttemptView, ...] = ()

    @property
    def known(self) -> bool:
        """Whether there is something to compare with: applied, and not destroyed since."""
        return self.resource is not None and not self.resource.gone and self.last is not None

    @property
    def situation(self) -> Situation:
        """By the newest attempt."""
        if not self.known or self.last is None:
            return Situation.ABSENT
        if any(view.overdue and view.ref == self.last.ref for view in self.unseen):
            return Situation.UNSEEN
        return situation_of(self.last.state, self.last.failure)

    @property
    def next_attempt(self) -> int:
        numbered = self.resource.numbered if self.resource else 0
        newest = self.last.ref.number if self.last else 0
        return 1 + max(numbered, newest, *(attempt.ref.number for attempt in self.active), 0)

    @property
    def current(self) -> Attempt | None:
        """The newest active attempt, else the last: what a change of the run acts on."""
        return self.active[-1] if self.active else self.last


def prior_of(attempt: Attempt) -> Prior:
    """An attempt as a plan names it."""
    return Prior(
        attempt=attempt.ref.number,
        state=attempt.state,
        ended_at=attempt.ended_at,
        failure=attempt.failure,
    )


NO_ATTEMPTS = CurrentAttempts()


def current_attempts(
    state: State, observed: Mapping[AttemptRef, AttemptView]
) -> Mapping[Address, CurrentAttempts]:
    """Return the current attempts of every recorded resource, in one pass over the state. If they
    read the output of a run that was renamed since, their specs have its new name."""
    active: dict[Address, list[Attempt]] = {}
    for attempt in state.active:
        active.setdefault(attempt.ref.address, []).append(attempt)
    new_names = _new_names(state)
    return {
        address: _attempts_of(resource, active.get(address, ()), observed, new_names)
        for address, resource in state.resources.items()
    }


def _new_names(state: State) -> dict[AttemptRef, str]:
    """The names of renamed runs, by their current attempts as they were called before."""
    last = (resource.last for resource in state.resources.values())
    return {
        AttemptRef(before, attempt.ref.number): attempt.ref.address.name
        for attempt in (*last, *state.active)
        if attempt is not None
        for before in attempt.formerly
    }


def _attempts_of(
    resource: Resource,
    recorded: Iterable[Attempt],
    observed: Mapping[AttemptRef, AttemptView],
    new_names: Mapping[AttemptRef, str],
) -> CurrentAttempts:
    attempts = {attempt.ref: attempt for attempt in recorded}
    if resource.last is not None:
        attempts[resource.last.ref] = resource.last
    if not attempts:
        return CurrentAttempts(resource=resource)
    true = [_corrected(attempts[ref], observed.get(ref)) for ref in sorted(attempts)]
    if new_names:
        true = [_with_new_names(attempt, new_names) for attempt in true]
    last = None
    if resource.last is not None:
        last = next(attempt for attempt in true if attempt.ref == resource.last.ref)
    return CurrentAttempts(
        resource=resource,
        last=last,
        active=tuple(attempt for attempt in true if attempt.state.active),
        unseen=tuple(
            view
            for ref in sorted(attempts)
            if (view := observed.get(ref)) is not None
            and view.unavailable is not None
            and (view.state.active or view.overdue)
        ),
    )


def _corrected(attempt: Attempt, status: AttemptView | None) -> Attempt:
    return attempt if status is None else attempt.seen_as(status)


def _with_new_names(attempt: Attempt, new_names: Mapping[AttemptRef, str]) -> Attempt:
    spec = with_new_names(attempt.inputs.spec, new_names)
    if spec == attempt.inputs.spec:
        return attempt
    return replace(attempt, inputs=replace(attempt.inputs, spec=spec))
