"""The effects of a plan, and whether what one plan shows covers what another one does.

An effect is the same for the same files, whatever was applied in between: it has no serial, token,
fingerprint or pool, and no attempt of a run that it comes after. Of its packages, only those of a
declared environment count, since others are of the machine that plans. Environments have no effect
of their own: they start nothing, and each run holds the digest of its environment.

What differs between an effect and one that was shown is told in words.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from sgpu_decl.model.address import Kind
from sgpu_decl.model.job import ONE
from sgpu_decl.model.jsonable import Json, Spec, canonical
from sgpu_decl.model.launch import LaunchInputs
from sgpu_decl.model.plan import Action, Change, Plan
from sgpu_decl.model.proposal import Effect
from sgpu_decl.model.run_outputs import unpinned
from sgpu_decl.model.state import Attempt
from sgpu_decl.planner.field_changes import compare
from sgpu_decl.planner.jobs.launched_run import launches_in, without_staged

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
    made = change.launch.made if change.launch else None
    return replace(
        effect,
        attempt=change.attempt if change.launches else made,
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
    """The spec without what a launch takes along, and that. What several tasks take along is in
    the spec."""
    if kind is not Kind.JOB:
        return unpinned(inputs.spec), inputs
    return without_staged(inputs.spec), launches_in(inputs.spec).get(ONE, inputs)


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


_SHOWN = 5  # of one kind
_LONGEST = 60  # letters of a value

Contents = Callable[[str], Mapping[str, str] | None]


def effect_differences(
    shown: Effect, planned: Effect, *, before: Contents, after: Contents
) -> list[str]:
    """What differs, one text for each kind: action, fields, code, environment, drift.

    Args:
        before: what the digests of the shown effect stand for, as far as that is known.
        after: the same of the planned one.
    """
    return list(_differences(shown, planned, before, after))


def _differences(
    shown: Effect, planned: Effect, before: Contents, after: Contents
) -> Iterator[str]:
    if shown.action is not planned.action:
        yield f"`{shown.action}` was shown"
    elif planned.destructive and not shown.destructive:
        yield "it stops active attempts, which was not shown"
    if planned.beside and not shown.beside:
        yield "it starts beside an active attempt, which was not shown"
    if planned.moved_from not in (None, shown.moved_from):
        yield f"it moves the history of `{planned.moved_from}`, which was not shown"
    if shown.backend != planned.backend:
        yield f"backend `{shown.backend}` -> `{planned.backend}`"
    if shown.spec is None or planned.spec is None:
        return
    fields = [
        f"`{item.path}` {_value(item.before, there=not item.added)} -> "
        f"{_value(item.after, there=not item.removed)}"
        for item in compare(shown.spec, planned.spec)
    ]
    if fields:
        yield f"fields: {_listing(fields)}"
    if shown.code != planned.code:
        yield f"code: {_content_in_words(shown.code, planned.code, before, after, _file)}"
    if shown.environment != planned.environment:
        words = _content_in_words(shown.packages, planned.packages, before, after, _package)
        yield f"environment: {words}"
    if drifted := sorted(set(planned.drifted) - set(shown.drifted)):
        yield f"changed on the platform: {_listing([_path(item) for item in drifted])}"


def _content_in_words(
    shown: str | None,
    planned: str | None,
    before: Contents,
    after: Contents,
    words: Callable[[str, str | None, str | None], str],
) -> str:
    old = before(shown) if shown else {}
    new = after(planned) if planned else {}
    names = sorted({*(old or ()), *(new or ())})
    differing = [
        words(name, (old or {}).get(name), (new or {}).get(name))
        for name in names
        if (old or {}).get(name) != (new or {}).get(name)
    ]
    if old is None or new is None or not differing:
        return "another one"
    return _listing(differing)


def _file(name: str, old: str | None, new: str | None) -> str:
    note = " (new)" if old is None else " (gone)" if new is None else ""
    return f"`{name}`{note}"


def _package(name: str, old: str | None, new: str | None) -> str:
    return f"`{name}` {old or '(none)'} -> {new or '(none)'}"


def _path(drifted: str) -> str:
    import json

    return f"`{json.loads(drifted)[0]}`"


def _value(value: Json, *, there: bool) -> str:
    if not there:
        return "(none)"
    text = canonical(value)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"


def _listing(items: Sequence[str]) -> str:
    more = len(items) - _SHOWN
    return ", ".join(items[:_SHOWN]) + (f" and {more:,} more" if more > 0 else "")
