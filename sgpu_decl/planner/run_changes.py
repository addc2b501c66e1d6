"""The change of one run: the decision table, applied to its attempts."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import field, replace
from datetime import datetime

from sgpu_decl.diagnostics.diagnostic import Diagnostic, Severity
from sgpu_decl.frozen_dataclass import dataclass
from sgpu_decl.model.desired import DesiredRun
from sgpu_decl.model.environment import PackageList
from sgpu_decl.model.jsonable import Spec
from sgpu_decl.model.plan import (
    Action,
    Change,
    CodeChange,
    FieldChange,
    FieldDifference,
    FieldEffect,
    PlannedLaunch,
    Reason,
)
from sgpu_decl.model.state import Attempt
from sgpu_decl.planner.attempt_checks import work_lost
from sgpu_decl.planner.decisions import Decision, RunVerdict, Situation, decide
from sgpu_decl.planner.environment_changes import of_run
from sgpu_decl.planner.field_changes import CellFields, NewFields, compare, leaves
from sgpu_decl.planner.fingerprint import fingerprint, token
from sgpu_decl.planner.last_known import CurrentAttempts, prior_of
from sgpu_decl.planner.plan_checks import place_of
from sgpu_decl.planner.policy import FieldClass, class_of, effect_of

Changed = tuple[Change, tuple[Diagnostic, ...]]

_ABOUT_THE_LAST = (Reason.PREVIOUS_FAILED, Reason.PREVIOUS_LOST)


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What the request and the backend say about one run. `on_active` is None where the option
    was not given."""

    lineage: str
    now: datetime
    rerun: bool = False
    retry_failed: bool = False
    heal: bool = False
    on_active: str | None = None
    in_place: frozenset[str] = frozenset()
    queues: bool = True
    package_lists: Mapping[str, PackageList] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Start:
    """How a new attempt relates to the active ones; `refused` where it may not start at all."""

    action: Action = Action.CREATE
    stop: tuple[Attempt, ...] = ()
    wait_for: tuple[Attempt, ...] = ()
    beside: tuple[Attempt, ...] = ()
    refused: bool = False


def change_of(
    desired: DesiredRun, attempts: CurrentAttempts, options: Options, cells: CellFields
) -> Changed:
    """Return the change of one run, and the checks about it."""
    same_as = _same_as(desired, attempts)
    decision = _decision(desired, attempts, same_as, options)
    fields: Sequence[FieldChange]
    if not attempts.known:
        new = NewFields(desired.spec, desired.places)
        fields = cells.of(new) if desired.address.key else new
    else:
        fields = _changed_fields(desired, attempts, same_as or attempts.current, options)
    if decision.verdict in (RunVerdict.KEEP, RunVerdict.ADOPT):
        change = _kept(desired, attempts, same_as, decision, fields)
        return change, ()
    start = _start(desired, attempts, options)
    reason = decision.reason or _what_differs(desired, attempts.current, fields)
    change = _launched(desired, attempts, start, reason, fields, options)
    return change, tuple(_start_checks(desired, attempts, start, options))


def _decision(
    desired: DesiredRun, attempts: CurrentAttempts, same_as: Attempt | None, options: Options
) -> Decision:
    situation = attempts.situation
    if attempts.known and attempts.active and (same_as is None or same_as.state.active):
        situation = Situation.ACTIVE
    return decide(
        situation,
        same=same_as is not None,
        rerun=options.rerun or desired.until == "always",
        retry_failed=options.retry_failed,
        heal=options.heal,
    )


def _same_as(desired: DesiredRun, attempts: CurrentAttempts) -> Attempt | None:
    """Return the attempt that computes what is wanted: the newest active one, else the last."""
    if not attempts.known or attempts.last is None:
        return None
    for attempt in (*reversed(attempts.active), attempts.last):
        if _same_inputs(desired, attempt) and not any(
            class_of(item.path) is FieldClass.DATA
            for item in compare(attempt.inputs.spec, desired.spec, ignored=desired.ignore_changes)
        ):
            return attempt
    return None


def _same_inputs(desired: DesiredRun, attempt: Attempt) -> bool:
    return (
        desired.has_code(attempt.inputs.code_digest)
        and attempt.inputs.environment_digest == desired.environment_digest
    )


def _changed_fields(
    desired: DesiredRun, attempts: CurrentAttempts, base: Attempt | None, options: Options
) -> tuple[FieldChange, ...]:
    active = bool(attempts.active)
    return tuple(
        _field_change(desired, item, options.in_place, active=active)
        for item in differences(desired.spec, attempts, base, desired.ignore_changes)
    )


def differences(
    spec: Spec, attempts: CurrentAttempts, base: Attempt | None, ignored: Collection[str]
) -> tuple[FieldDifference, ...]:
    """What a spec changes: data fields against the attempt that they decide about, the others
    against what was recorded last, which an update may have moved on since."""
    recorded = attempts.resource.spec if attempts.resource else spec
    computed = base.inputs.spec if base else recorded
    if recorded == computed:
        changes = compare(recorded, spec, ignored=ignored)
    else:
        data = compare(computed, spec, ignored=ignored)
        rest = compare(recorded, spec, ignored=ignored)
        mixed = [item for item in data if class_of(item.path) is FieldClass.DATA]
        mixed += [item for item in rest if class_of(item.path) is not FieldClass.DATA]
        changes = tuple(sorted(mixed, key=lambda item: item.path))
    return tuple(item for item in changes if class_of(item.path) is not FieldClass.IDENTITY)


def _field_change(
    desired: DesiredRun, item: FieldDifference, in_place: frozenset[str], *, active: bool
) -> FieldChange:
    return FieldChange(
        path=item.path,
        before=item.before,
        after=item.after,
        effect=effect_of(item.path, in_place, active=active),
        origin=None if item.removed else place_of(desired.places, item.path + _member(item)),
        added=item.added,
        removed=item.removed,
    )


def _member(item: FieldDifference) -> str:
    """The first member of a list that differs, as the end of its path; nothing for what is none."""
    old, new = item.before, item.after
    if not isinstance(new, list):
        return ""
    same = old if isinstance(old, list) else []
    return next((f".{at}" for at, one in enumerate(new) if same[at : at + 1] != [one]), "")


def _what_differs(
    desired: DesiredRun, base: Attempt | None, fields: Sequence[FieldChange]
) -> Reason:
    if any(field.effect is FieldEffect.NEW_ATTEMPT for field in fields):
        return Reason.CONFIG_CHANGED
    if base is not None and desired.has_code(base.inputs.code_digest):
        return Reason.ENVIRONMENT_CHANGED
    return Reason.CODE_CHANGED


def _start(desired: DesiredRun, attempts: CurrentAttempts, options: Options) -> _Start:
    if not attempts.active:
        # What is written is refused from the start. The option is about attempts that are active.
        queued = options.on_active is None and desired.on_active == "queue"
        return _Start(refused=queued and not options.queues)
    if not attempts.known:
        # Destroyed and still stopping: the next attempt starts once that has ended.
        return _Start(wait_for=attempts.active)
    match options.on_active or desired.on_active:
        case "replace":
            return _Start(action=Action.REPLACE, stop=attempts.active)
        case "queue" if not options.queues:
            return _Start(refused=True)
        case "queue":
            return _Start(wait_for=attempts.active)
        case "parallel":
            return _Start(beside=attempts.active)
        case _:
            return _Start(action=Action.REPLACE, stop=attempts.active, refused=True)


def _start_checks(
    desired: DesiredRun, attempts: CurrentAttempts, start: _Start, options: Options
) -> Iterator[Diagnostic]:
    if start.refused and (options.on_active or desired.on_active) == "queue":
        earlier = "an earlier one"
        hint = "write `on_active: replace` or `parallel`, or leave it out"
        if attempts.active:
            earlier = f"`{attempts.active[-1].ref}`"
            hint = (
                f"wait for it with `sgpu wait '{attempts.active[-1].ref}'` and apply then, or "
                "choose `--on-active replace` or `parallel`"
            )
        yield Diagnostic(
            code="cannot_queue",
            severity=Severity.ERROR,
            address=str(desired.address),
            summary=f"the backend `{desired.backend}` starts what it is given: no attempt can wait "
            f"there for {earlier} to end",
            hint=hint,
            place=place_of(desired.places, "on_active"),
        )
        return
    if start.refused:
        refs = ", ".join(f"`{attempt.ref}`" for attempt in attempts.active)
        one = len(attempts.active) == 1
        each = "it" if one else "them"
        yield Diagnostic(
            code="active_run",
            severity=Severity.ERROR,
            address=str(desired.address),
            summary=f"{refs} {_counts(attempts, one=one)} active, and `on_active` is `error`",
            hint=_out_of_reach(attempts)
            or f"wait for {each} or cancel {each}, or choose `--on-active replace`, `queue` or "
            "`parallel`",
            place=place_of(desired.places, "on_active"),
        )
        return
    yield from work_lost(start.stop, attempts, options.now)
    if start.stop and desired.prevent_destroy:
        yield Diagnostic(
            code="prevent_destroy",
            severity=Severity.ERROR,
            address=str(desired.address),
            summary="replacing the active run is forbidden by `lifecycle.prevent_destroy`",
            hint="choose `--on-active queue` or `parallel`, or remove `prevent_destroy`",
            place=place_of(desired.places, "lifecycle.prevent_destroy"),
        )


def _counts(attempts: CurrentAttempts, *, one: bool) -> str:
    if attempts.unseen:
        return "counts as" if one else "count as"
    return "is" if one else "are"


def _out_of_reach(attempts: CurrentAttempts) -> str | None:
    """The next step where an active attempt can neither be waited for nor cancelled from here."""
    return next((view.way_out for view in attempts.unseen if view.state.active), None)


def _launched(
    desired: DesiredRun,
    attempts: CurrentAttempts,
    start: _Start,
    reason: Reason,
    fields: Sequence[FieldChange],
    options: Options,
) -> Change:
    number = attempts.next_attempt
    about = attempts.last if reason in _ABOUT_THE_LAST else attempts.current
    code = desired.code
    print_ = fingerprint(desired.spec, desired.code_digest, desired.environment_digest)
    launch = PlannedLaunch(
        owner=desired.owner,
        inputs=desired.launch_inputs(desired.spec, print_),
        token=token(options.lineage, desired.address, number, print_),
        stop=tuple(attempt.ref.number for attempt in start.stop),
        wait_for=tuple(attempt.ref.number for attempt in start.wait_for),
        beside=tuple(attempt.ref.number for attempt in start.beside),
    )
    return Change(
        address=desired.address,
        kind=desired.address.kind,
        backend=desired.backend,
        action=start.action,
        reason=reason,
        destructive=bool(start.stop),
        depends_on=(desired.environment.address,) if desired.environment else (),
        attempt=number,
        prior=prior_of(about) if about else None,
        fields=fields,
        unchanged=_unchanged(desired, fields) if attempts.known else 0,
        code=None
        if code is None
        else CodeChange(
            digest=code.digest, files=code.files, bytes=code.bytes, changed=code.changed
        ),
        environment=of_run(desired, attempts.current, options.package_lists),
        launch=None if start.refused else launch,
    )


def _kept(
    desired: DesiredRun,
    attempts: CurrentAttempts,
    same_as: Attempt | None,
    decision: Decision,
    fields: Sequence[FieldChange],
) -> Change:
    assert decision.reason is not None  # noqa: S101 - only launches go without one
    assert same_as is not None  # noqa: S101 - only the same computation is kept
    action = Action.ADOPT if decision.verdict is RunVerdict.ADOPT else Action.NO_OP
    reason = decision.reason
    launch = None
    moved = attempts.resource is not None and attempts.resource.owner != desired.owner
    if fields or moved:
        action = Action.UPDATE
        if decision.verdict is RunVerdict.KEEP:
            reason = Reason.CONFIG_CHANGED
        launch = PlannedLaunch(
            owner=desired.owner, inputs=replace(same_as.inputs, spec=desired.spec)
        )
    return Change(
        address=desired.address,
        kind=desired.address.kind,
        backend=desired.backend,
        action=action,
        reason=reason,
        attempt=same_as.ref.number if decision.verdict is RunVerdict.ADOPT else None,
        prior=prior_of(same_as),
        fields=fields,
        unchanged=_unchanged(desired, fields) if action is Action.UPDATE else 0,
        launch=launch,
    )


def _unchanged(desired: DesiredRun, fields: Sequence[FieldChange]) -> int:
    changed = {field.path for field in fields}
    return sum(path not in changed for path, _ in leaves(desired.spec.fields))
