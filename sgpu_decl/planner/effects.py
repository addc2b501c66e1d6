"""The effects of a plan, and whether what one plan shows covers what another one does.

An effect is the same for the same files, whatever was applied in between: it has no serial, token,
fingerprint or pool, and no attempt of a run that it comes after. Of its packages, only those of a
declared environment count, since others are of the machine that plans. Environments have no effect
of their own: they start nothing, and each run holds the digest of its environment.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from sgpu_decl.model.address import Kind
from sgpu_decl.model.jsonable import Spec, canonical
from sgpu_decl.model.launch import LaunchInputs
from sgpu_decl.model.plan import Action, Change, Plan
from sgpu_decl.model.proposal import Effect
from sgpu_decl.model.run_outputs import unpinned
from sgpu_decl.model.state import Attempt
from sgpu_decl.planner.jobs.launched_run import launched_by, without_staged

_STAYING = frozenset({Action.NO_OP, Action.ADOPT})
_ENDING = frozenset({Action.FORGET, Action.DESTROY})
_LESS: Mapping[Action, Action] = {
    Action.CREATE: Action.REPLACE,  # the attempt that was to be stopped has ended
    Action.FORGET: Action.DESTROY,
}
"""Actions that do less than another one. Whoever approved the other one has approved them, too."""


def effects_of(plan: Plan) -> tuple[Effect, ...]:
    """The effects of a plan, in the order of its changes. A plan that does nothing has none."""
    return tuple(
        _effect(change)
        for change in plan.changes
        if change.kind is not Kind.ENVIRONMENT
        and (change.action not in _STAYING or change.moved_from is not None)
    )


def _effect(change: Change) -> Effect:
    effect = Effect(
        address=change.address,
        kind=change.kind,
        backend=change.backend,
        action=change.action,
        destructive=change.destructive,
        moved_from=change.moved_from,
    )
    inputs = change.launch.inputs if change.launch else None
    if inputs is None or change.action in _ENDING:
        return effect
    spec, launched = _launched(change.kind, inputs)
    return replace(
        effect,
        attempt=change.attempt if change.launches else None,
        spec=spec,
        code=launched.code_digest,
        environment=launched.environment_digest,
        packages=launched.packages_digest if launched.environment_digest else None,
        beside=bool(change.launch and change.launch.beside) and _runs_alone(spec),
        drifted=tuple(
            sorted(
                canonical([item.path, item.before, item.after, item.added, item.removed])
                for item in change.fields
                if item.drifted
            )
        ),
    )


def _runs_alone(spec: Spec) -> bool:
    """Whether the file lets no attempt start beside an active one. Where it does, whoever read it
    knows."""
    return spec.fields.get("on_active") != "parallel"


def _launched(kind: Kind, inputs: LaunchInputs) -> tuple[Spec, LaunchInputs]:
    """The spec without what a launch takes along, and that."""
    if kind is not Kind.JOB:
        return unpinned(inputs.spec), inputs
    return without_staged(inputs.spec), launched_by(inputs.spec) or inputs


def covers(shown: Effect, planned: Effect) -> bool:
    """Whether a person who saw one effect saw all that the planned one does: the same, or less."""
    if (shown.address, shown.kind, shown.backend) != (
        planned.address,
        planned.kind,
        planned.backend,
    ):
        return False
    if planned.moved_from not in (None, shown.moved_from):
        return False
    if planned.action in _STAYING:  # it is moved, and nothing else
        return True
    if shown.action not in (planned.action, _LESS.get(planned.action)):
        return False
    if planned.destructive and not shown.destructive:
        return False
    if planned.beside and not shown.beside:
        return False
    return planned.action in _ENDING or (
        _content(shown) == _content(planned) and set(planned.drifted) <= set(shown.drifted)
    )


def _content(effect: Effect) -> tuple[Spec | str | None, ...]:
    return effect.spec, effect.code, effect.environment


def carried_out(effect: Effect, attempts: Iterable[Attempt]) -> Attempt | None:
    """The attempt that an effect became; None while it is open.

    It is found by what was launched, and not by a mark: a crash after the launch cannot leave an
    effect open, and of two proposals that show one launch, both are closed by it. What launches
    nothing leaves no attempt and is not repeated either: once it is done, a plan has it no more.

    Args:
        attempts: the history of the address of the effect.
    """
    if effect.attempt is None:
        return None
    content = _content(effect)
    return next(
        (
            attempt
            for attempt in attempts
            if attempt.ref.number >= effect.attempt
            and content
            == (
                unpinned(attempt.inputs.spec),
                attempt.inputs.code_digest,
                attempt.inputs.environment_digest,
            )
        ),
        None,
    )
