"""What becomes of one wanted run: the decision table applied to where it stands."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import field, replace
from datetime import datetime

from sgpu_decl.diagnostics.diagnostic import Severity
from sgpu_decl.frozen_dataclass import dataclass
from sgpu_decl.model.desired import Desired
from sgpu_decl.model.environment import PackageList
from sgpu_decl.model.plan import (
    Action,
    Change,
    Check,
    CodeChange,
    FieldChange,
    FieldEffect,
    PlannedLaunch,
    Reason,
)
from sgpu_decl.model.state import Attempt
from sgpu_decl.model.target import target_option
from sgpu_decl.planning.decisions import Decision, RunVerdict, Situation, decide
from sgpu_decl.planning.environment_changes import of_run
from sgpu_decl.planning.field_changes import FieldDifference, compare, leaves, parse
from sgpu_decl.planning.fingerprint import fingerprint, token
from sgpu_decl.planning.first_fields import NewFields
from sgpu_decl.planning.last_known import CurrentAttempts, prior_of
from sgpu_decl.planning.policy import FieldClass, class_of, effect_of
from sgpu_decl.planning.unsupported_fields import place_of
from sgpu_decl.planning.work_lost import work_lost

__all__ = ["Options", "change_of", "differences"]

Changed = tuple[Change, tuple[Check, ...]]

_ABOUT_THE_LAST = (Reason.PREVIOUS_FAILED, Reason.PREVIOUS_LOST)


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What the request and the backend say about one run. `on_active` is None where the option
    was not given."""

    lineage: str
    target: str | None
    now: datetime
    rerun: bool = False
    retry_failed: bool = False
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
    refused: bool = False


def change_of(
    wanted: Desired, standing: CurrentAttempts, options: Options, new_fields: NewFields
) -> Changed:
    """Return the change of one wanted run and what must be said about it."""
    same_as = _same_as(wanted, standing)
    decision = _decision(wanted, standing, same_as, options)
    if not standing.known:
        fields = new_fields.of(wanted)
    else:
        fields = _changed_fields(wanted, standing, same_as or standing.current, options)
    if decision.verdict in (RunVerdict.KEEP, RunVerdict.ADOPT):
        change = _kept(wanted, standing, same_as, decision, fields)
        return change, ()
    start = _start(wanted, standing, options)
    reason = decision.reason or _what_differs(wanted, standing.current, fields)
    change = _launched(wanted, standing, start, reason, fields, options)
    return change, tuple(_start_checks(wanted, standing, start, options))


def _decision(
    wanted: Desired, standing: CurrentAttempts, same_as: Attempt | None, options: Options
) -> Decision:
    situation = standing.situation
    if standing.known and standing.active and (same_as is None or same_as.state.active):
        situation = Situation.ACTIVE
    return decide(
        situation,
        same=same_as is not None,
        rerun=options.rerun or wanted.until == "always",
        retry_failed=options.retry_failed,
    )


def _same_as(wanted: Desired, standing: CurrentAttempts) -> Attempt | None:
    """Return the attempt that computes what is wanted: the newest active one, else the last."""
    if not standing.known or standing.last is None:
        return None
    for attempt in (*reversed(standing.active), standing.last):
        if _same_inputs(wanted, attempt) and not any(
            class_of(found.path) is FieldClass.DATA
            for found in compare(attempt.inputs.spec, wanted.spec, ignored=wanted.ignore_changes)
        ):
            return attempt
    return None


def _same_inputs(wanted: Desired, attempt: Attempt) -> bool:
    return (
        attempt.inputs.code_digest == wanted.code_digest
        and attempt.inputs.environment_digest == wanted.environment_digest
    )


def _changed_fields(
    wanted: Desired, standing: CurrentAttempts, base: Attempt | None, options: Options
) -> tuple[FieldChange, ...]:
    active = bool(standing.active)
    return tuple(
        _field_change(wanted, item, options.in_place, active=active)
        for item in differences(wanted.spec, standing, base, wanted.ignore_changes)
    )


def differences(
    spec: str, standing: CurrentAttempts, base: Attempt | None, ignored: Collection[str]
) -> tuple[FieldDifference, ...]:
    """What a spec changes: data fields against the attempt that they decide about, the others
    against what was recorded last, which an update may have moved on since."""
    recorded = standing.resource.spec if standing.resource else spec
    computed = base.inputs.spec if base else recorded
    if recorded == computed:
        found = compare(recorded, spec, ignored=ignored)
    else:
        data = compare(computed, spec, ignored=ignored)
        rest = compare(recorded, spec, ignored=ignored)
        mixed = [item for item in data if class_of(item.path) is FieldClass.DATA]
        mixed += [item for item in rest if class_of(item.path) is not FieldClass.DATA]
        found = tuple(sorted(mixed, key=lambda item: item.path))
    return tuple(item for item in found if class_of(item.path) is not FieldClass.IDENTITY)


def _field_change(
    wanted: Desired, item: FieldDifference, in_place: frozenset[str], *, active: bool
) -> FieldChange:
    return FieldChange(
        path=item.path,
        before=item.before,
        after=item.after,
        effect=effect_of(item.path, in_place, active=active),
        origin=None if item.removed else place_of(wanted.places, item.path + _member(item)),
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


def _what_differs(wanted: Desired, base: Attempt | None, fields: Sequence[FieldChange]) -> Reason:
    if any(field.effect is FieldEffect.NEW_ATTEMPT for field in fields):
        return Reason.CONFIG_CHANGED
    if base is not None and base.inputs.code_digest == wanted.code_digest:
        return Reason.ENVIRONMENT_CHANGED
    return Reason.CODE_CHANGED


def _start(wanted: Desired, standing: CurrentAttempts, options: Options) -> _Start:
    if not standing.active:
        return _Start()
    if not standing.known:
        # Destroyed and still stopping: the next attempt starts once that has ended.
        return _Start(wait_for=standing.active)
    match options.on_active or wanted.on_active:
        case "replace":
            return _Start(action=Action.REPLACE, stop=standing.active)
        case "queue" if not options.queues:
            return _Start(refused=True)
        case "queue":
            return _Start(wait_for=standing.active)
        case "parallel":
            return _Start()
        case _:
            return _Start(action=Action.REPLACE, stop=standing.active, refused=True)


def _start_checks(
    wanted: Desired, standing: CurrentAttempts, start: _Start, options: Options
) -> Iterator[Check]:
    if start.refused and (options.on_active or wanted.on_active) == "queue":
        yield Check(
            id="cannot_queue",
            severity=Severity.ERROR,
            address=wanted.address,
            summary=f"the backend `{wanted.backend}` starts what it is given: no attempt can wait "
            f"there for `{standing.active[-1].ref}` to end",
            hint=f"wait for it with `sgpu wait '{standing.active[-1].ref}'"
            f"{target_option(options.target)}` and apply then, or choose `--on-active replace` or "
            "`parallel`",
            place=place_of(wanted.places, "on_active"),
        )
        return
    if start.refused:
        refs = ", ".join(f"`{attempt.ref}`" for attempt in standing.active)
        one = len(standing.active) == 1
        each = "it" if one else "them"
        yield Check(
            id="active_run",
            severity=Severity.ERROR,
            address=wanted.address,
            summary=f"{refs} {'is' if one else 'are'} active, and `on_active` is `error`",
            hint=f"wait for {each} or cancel {each}, or choose `--on-active replace`, `queue` or "
            "`parallel`",
            place=place_of(wanted.places, "on_active"),
        )
        return
    yield from work_lost(start.stop, options.now)
    if start.stop and wanted.prevent_destroy:
        yield Check(
            id="prevent_destroy",
            severity=Severity.ERROR,
            address=wanted.address,
            summary="replacing the active run is forbidden by `lifecycle.prevent_destroy`",
            hint="choose `--on-active queue` or `parallel`, or remove `prevent_destroy`",
            place=place_of(wanted.places, "lifecycle.prevent_destroy"),
        )


def _launched(
    wanted: Desired,
    standing: CurrentAttempts,
    start: _Start,
    reason: Reason,
    fields: tuple[FieldChange, ...],
    options: Options,
) -> Change:
    number = standing.next_attempt
    about = standing.last if reason in _ABOUT_THE_LAST else standing.current
    code = wanted.code
    print_ = fingerprint(wanted.spec, wanted.code_digest, wanted.environment_digest)
    launch = PlannedLaunch(
        owner=wanted.owner,
        inputs=wanted.launch_inputs(wanted.spec, print_),
        token=token(options.lineage, wanted.address, number, print_),
        stop=tuple(attempt.ref.number for attempt in start.stop),
        wait_for=tuple(attempt.ref.number for attempt in start.wait_for),
    )
    return Change(
        address=wanted.address,
        kind=wanted.address.kind,
        backend=wanted.backend,
        action=start.action,
        reason=reason,
        destructive=bool(start.stop),
        depends_on=(wanted.environment.address,) if wanted.environment else (),
        attempt=number,
        prior=prior_of(about) if about else None,
        fields=fields,
        unchanged=_unchanged(wanted, fields) if standing.known else 0,
        code=None
        if code is None
        else CodeChange(
            digest=code.digest, files=code.files, bytes=code.bytes, changed=code.changed
        ),
        environment=of_run(wanted, standing.current, options.package_lists),
        launch=None if start.refused else launch,
    )


def _kept(
    wanted: Desired,
    standing: CurrentAttempts,
    same_as: Attempt | None,
    decision: Decision,
    fields: tuple[FieldChange, ...],
) -> Change:
    assert decision.reason is not None  # noqa: S101 - only launches go without one
    assert same_as is not None  # noqa: S101 - only the same computation is kept
    action = Action.ADOPT if decision.verdict is RunVerdict.ADOPT else Action.NO_OP
    reason = decision.reason
    launch = None
    moved = standing.resource is not None and standing.resource.owner != wanted.owner
    if fields or moved:
        action = Action.UPDATE
        if decision.verdict is RunVerdict.KEEP:
            reason = Reason.CONFIG_CHANGED
        launch = PlannedLaunch(owner=wanted.owner, inputs=replace(same_as.inputs, spec=wanted.spec))
    return Change(
        address=wanted.address,
        kind=wanted.address.kind,
        backend=wanted.backend,
        action=action,
        reason=reason,
        attempt=same_as.ref.number if decision.verdict is RunVerdict.ADOPT else None,
        prior=prior_of(same_as),
        fields=fields,
        unchanged=_unchanged(wanted, fields) if action is Action.UPDATE else 0,
        launch=launch,
    )


def _unchanged(wanted: Desired, fields: Sequence[FieldChange]) -> int:
    changed = {field.path for field in fields}
    return sum(path not in changed for path, _ in leaves(parse(wanted.spec)))
