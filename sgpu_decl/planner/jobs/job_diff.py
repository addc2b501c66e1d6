"""What becomes of one declared job: what is wanted beside what was applied, and both beside what is
seen where it is kept."""

from collections.abc import Collection, Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import replace

from sgpu_decl.diagnostics.diagnostic import Diagnostic
from sgpu_decl.model.address import Address, Kind
from sgpu_decl.model.desired import CodeFacts, DesiredRun
from sgpu_decl.model.environment import PackageList
from sgpu_decl.model.job import (
    KIND,
    ONE,
    OURS_IN_TASK,
    RUN,
    STAGED,
    DesiredJob,
    ObservedJob,
    handle_of,
)
from sgpu_decl.model.jsonable import NO_FIELDS, Json, Spec, digest
from sgpu_decl.model.launch import LaunchInputs
from sgpu_decl.model.plan import (
    Action,
    Change,
    CodeChange,
    EnvironmentChange,
    FieldChange,
    FieldDifference,
    FieldEffect,
    PlannedLaunch,
    Reason,
)
from sgpu_decl.model.state import Resource, State
from sgpu_decl.planner.environment_changes import difference
from sgpu_decl.planner.field_changes import compare, leaves
from sgpu_decl.planner.fingerprint import token
from sgpu_decl.planner.jobs.ignored_settings import ignored_by, taking, without_defaults
from sgpu_decl.planner.jobs.job_checks import (
    cannot_read,
    drift,
    elsewhere,
    launch_hours,
    managed,
    namesakes,
    owners,
    staging_moves,
    strangers,
    unseen,
)
from sgpu_decl.planner.jobs.job_policy import effect_of, is_ours, is_ours_in_task, reason_of
from sgpu_decl.planner.jobs.launched_run import follows, launches_in, staged_inputs
from sgpu_decl.planner.plan_checks import place_of

_DIGESTS = frozenset(f"{STAGED}.{item}" for item in ("code", "counted", "environment", "packages"))

# In the order of their precedence.
_WHAT_CHANGED = (Reason.CONFIG_CHANGED, Reason.CODE_CHANGED, Reason.ENVIRONMENT_CHANGED)


def job_change(
    desired: DesiredJob, observed: ObservedJob, state: State
) -> tuple[Change, tuple[Diagnostic, ...]]:
    """Return the change of one job and what must be said about it."""
    resource = state.resources.get(desired.address)
    for spec in desired.kept if resource is not None else ():
        kept = replace(desired, spec=spec)
        change, checks = _changed(kept, resource, observed, state.lineage)
        if change.idle:
            return change, (*checks, *cannot_read(kept))
    change, checks = _changed(desired, resource, observed, state.lineage)
    checks = (*checks, *cannot_read(desired))
    if change.action in (Action.CREATE, Action.UPDATE) and desired.launches:
        before = resource.spec if resource is not None and not resource.gone else NO_FIELDS
        change = _with_launches(change, desired.launches, launches_in(before), state.package_lists)
        checks = (*checks, *launch_hours(desired))
    return change, checks


def _changed(
    desired: DesiredJob,
    resource: Resource | None,
    observed: ObservedJob,
    lineage: str,
) -> tuple[Change, tuple[Diagnostic, ...]]:
    handle = handle_of(resource)
    if resource is None or handle is None:
        fields = tuple(_new(desired, path, value) for path, value in leaves(desired.spec.fields))
        change = _created(desired, resource, lineage, Reason.FIRST_RUN, _told(desired, fields))
        return change, tuple(namesakes(desired, observed))
    if handle.workspace != observed.workspace:
        refused = elsewhere(desired, handle, observed)
        return _change(desired, Action.NO_OP, Reason.UP_TO_DATE), (refused,)
    if observed.document is None:
        differences = compare(resource.spec, desired.spec)
        fields = tuple(_field(desired, item, FieldEffect.IN_PLACE) for item in differences)
        return _created(
            desired, resource, lineage, Reason.PREVIOUS_LOST, _told(desired, fields)
        ), ()
    manager = desired.rules.manager(observed.document.fields)
    if manager is not None:
        refused = managed(desired, handle, manager)
        return _change(desired, Action.NO_OP, Reason.UP_TO_DATE), (refused,)
    change, checks = _kept(desired, resource, observed.document, staged=observed.staged)
    seen = observed.document.fields
    checks = (*checks, *owners(desired, seen), *strangers(desired, resource, seen))
    if observed.hidden is not None:
        checks = (*checks, unseen(desired, handle, observed.hidden))
    if not change.idle:
        checks = (*checks, *staging_moves(desired, resource, seen))
    return change, checks


def _kept(
    desired: DesiredJob, resource: Resource, document: Spec, *, staged: bool
) -> tuple[Change, tuple[Diagnostic, ...]]:
    live = without_defaults(document, desired.rules, desired.spec, resource.spec)
    ignored = ignored_by(desired.spec.fields, desired.address.name, desired.rules)
    spec = _with_ignored(desired, live, ignored)
    changed = {item.path: item for item in compare(resource.spec, spec, ignored=ignored)}
    there = {item.path: item for item in compare(live, spec) if not is_ours(item.path)}
    drifted = sorted(there.keys() - changed.keys())
    fields = [
        # Where the workspace was changed too, what is there now is what goes.
        _field(desired, there[path], FieldEffect.IN_PLACE)
        if path in there
        else _field(desired, item, FieldEffect.STATE_ONLY)
        for path, item in changed.items()
    ]
    fields += [
        replace(_field(desired, there[path], FieldEffect.IN_PLACE), drifted=True)
        for path in drifted
    ]
    # Where the task changes in any case, it is staged anew.
    if not staged and not any(path.startswith(f"{desired.rules.task}.") for path in changed):
        drifted = [*drifted, STAGED]
        fields.append(_staged_again(desired))
    reasons = {reason_of(path, desired.rules) for path in _leading(desired, changed.values())}
    reason = next((item for item in _WHAT_CHANGED if item in reasons), None)
    moved = resource.owner != desired.owner or resource.backend != desired.backend
    if reason is None and not drifted and not moved:
        return _change(desired, Action.NO_OP, Reason.UP_TO_DATE), ()
    if reason is None:
        reason = Reason.LIVE_DRIFTED if drifted else Reason.CONFIG_CHANGED
    shown = {field.path for field in fields}
    change = replace(
        _change(replace(desired, spec=spec), Action.UPDATE, reason),
        fields=_told(desired, sorted(fields, key=lambda field: field.path)),
        unchanged=sum(path not in shown for path, _ in leaves(spec.fields)),
    )
    return change, (drift(desired, drifted, live),) if drifted else ()


def _staged_again(desired: DesiredJob) -> FieldChange:
    """What the job launches was deleted, and the job itself was not touched."""
    return FieldChange(
        path=STAGED,
        before="deleted",
        after="staged",
        effect=FieldEffect.IN_PLACE,
        origin=place_of(desired.places, RUN),
        drifted=True,
    )


def _told(desired: DesiredJob, fields: Iterable[FieldChange]) -> tuple[FieldChange, ...]:
    """Without what merely follows from a changed run, and without digests, which `code` and
    `environment` of the change tell. What somebody edited is told in any case."""
    differences = tuple(fields)
    leading = _leading(desired, differences)
    return tuple(
        item
        for item in differences
        if item.drifted or (item.path in leading and not _is_told_elsewhere(item))
    )


def _is_told_elsewhere(item: FieldChange) -> bool:
    """Digests are told by `code` and `environment`. Those of tasks that change say which task; that
    of the code that counts follows from that of the code."""
    if is_ours_in_task(item.path):
        digest = f".{STAGED}." in item.path
        return digest and (item.added or item.removed or item.path.endswith(".counted"))
    return item.path in _DIGESTS


def _leading(desired: DesiredJob, differences: Iterable[FieldDifference | FieldChange]) -> set[str]:
    """Those that do not follow from others: where a run changed, so did the task that is made of
    it."""
    removed = {item.path: item.removed for item in differences}
    leaders: dict[str, set[str]] = {}  # the parts of ours that changed, by the task
    for path in removed:
        if is_ours_in_task(path):
            _, task, part, *_ = path.split(".", 3)
            leaders.setdefault(task, set()).add(part)
        elif path.partition(".")[0] in (RUN, STAGED):
            leaders.setdefault(ONE, set())
    if not leaders:
        return set(removed)
    return {path for path, gone in removed.items() if not _follows(desired, path, gone, leaders)}


def _follows(
    desired: DesiredJob,
    path: str,
    removed: bool,  # noqa: FBT001 - private
    leaders: Mapping[str, AbstractSet[str]],
) -> bool:
    """Of a job that launches a notebook now, or did, the file says what its task is. So it does of
    a task among several: what its platform runs follows from what is ours, and of a run all but
    the order."""
    block, _, below = path.partition(".")
    if block not in desired.rules.of_run:
        return False
    task, _, key = below.partition(".")
    part = key.partition(".")[0]
    if task in leaders:
        if not leaders[task] - {KIND}:
            return False
        launched = desired.launches.get(task)
        of_run = launched is not None and launched.address.kind is Kind.RUN
        gone = removed and KIND in leaders[task]
        if block != desired.rules.task:
            return of_run or gone
        if part in OURS_IN_TASK:
            return False
        return follows(part) or gone or (of_run and part not in desired.rules.order)
    if ONE not in leaders or part in desired.rules.of_notebook:
        return False
    return ONE in desired.launches or removed


def _with_launches(
    change: Change,
    launches: Mapping[str, DesiredRun],
    before: Mapping[str, LaunchInputs],
    known: Mapping[str, PackageList],
) -> Change:
    """With what the launches take along, and how that differs from what was staged `before`. What
    several tasks take along is counted once."""
    assert change.launch is not None  # noqa: S101 - set by _change
    codes: dict[str, CodeFacts] = {}
    environments: dict[str, EnvironmentChange] = {}
    uses: dict[Address, None] = {}
    for task, run in launches.items():
        staged = before.get(task)
        code, environment = run.code, run.environment
        if code is not None and (staged is None or code.digest != staged.code_digest):
            codes.setdefault(code.digest, code)
        if environment is None:
            continue
        uses[environment.address] = None
        if staged is None or environment.digest != staged.environment_digest:
            was = known.get(staged.packages_digest or "") if staged is not None else None
            packages = difference(was, environment.packages) if staged is not None else ()
            environments.setdefault(
                environment.digest,
                EnvironmentChange(
                    digest=environment.digest,
                    packages=packages,
                    bytes=environment.bytes,
                    bytes_to_stage=environment.bytes_to_stage,
                ),
            )
    one = launches.get(ONE)
    return replace(
        change,
        depends_on=tuple(uses),
        code=_all_code(codes),
        environment=_all_environments(environments),
        launch=replace(change.launch, inputs=staged_inputs(one, change.launch.inputs))
        if one is not None
        else change.launch,
    )


def _all_code(codes: Mapping[str, CodeFacts]) -> CodeChange | None:
    if not codes:
        return None
    listed = tuple(codes.values())
    return CodeChange(
        digest=listed[0].digest if len(codes) == 1 else digest("\n".join(sorted(codes))),
        files=sum(code.files for code in listed),
        bytes=sum(code.bytes for code in listed),
        changed=tuple(dict.fromkeys(path for code in listed for path in code.changed)),
    )


def _all_environments(environments: Mapping[str, EnvironmentChange]) -> EnvironmentChange | None:
    listed = tuple(environments.values())
    if len(listed) < 2:
        return listed[0] if listed else None
    return EnvironmentChange(
        digest=None,
        packages=tuple(dict.fromkeys(package for one in listed for package in one.packages)),
        bytes=_sum(one.bytes for one in listed),
        bytes_to_stage=_sum(one.bytes_to_stage for one in listed),
    )


def _sum(amounts: Iterable[int | None]) -> int | None:
    """None where one of them is not known."""
    listed = list(amounts)
    return None if None in listed else sum(amount for amount in listed if amount is not None)


def _with_ignored(desired: DesiredJob, live: Spec, ignored: Collection[str]) -> Spec:
    """What is wanted, with what is seen at the paths whose changes are not acted upon."""
    if not ignored:
        return desired.spec
    return Spec.of(taking(desired.spec.fields, live.fields, ignored))


def _new(desired: DesiredJob, path: str, value: Json) -> FieldChange:
    return FieldChange(
        path=path,
        before=None,
        after=value,
        effect=effect_of(path),
        origin=place_of(desired.places, path),
        added=True,
    )


def _field(desired: DesiredJob, item: FieldDifference, effect: FieldEffect) -> FieldChange:
    return FieldChange(
        path=item.path,
        before=item.before,
        after=item.after,
        effect=effect_of(item.path, otherwise=effect),
        origin=place_of(desired.places, item.path),
        added=item.added,
        removed=item.removed,
    )


def _created(
    desired: DesiredJob,
    resource: Resource | None,
    lineage: str,
    reason: Reason,
    fields: tuple[FieldChange, ...],
) -> Change:
    number = (resource.numbered if resource else 0) + 1
    change = _change(desired, Action.CREATE, reason)
    assert change.launch is not None  # noqa: S101 - set by _change
    mark = token(lineage, desired.address, number, change.launch.inputs.fingerprint)
    return replace(change, fields=fields, launch=replace(change.launch, token=mark, made=number))


def _change(desired: DesiredJob, action: Action, reason: Reason) -> Change:
    return Change(
        address=desired.address,
        kind=desired.address.kind,
        backend=desired.backend,
        action=action,
        reason=reason,
        launch=PlannedLaunch(
            owner=desired.owner,
            inputs=LaunchInputs(spec=desired.spec, fingerprint=digest(desired.spec.text)),
        ),
    )
