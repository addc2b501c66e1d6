"""What becomes of one declared job: what is wanted beside what was applied, and both beside what is
seen where it is kept."""

import itertools
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace

from sgpu_decl.diagnostics.diagnostic import Diagnostic, Severity
from sgpu_decl.model.desired import DesiredRun
from sgpu_decl.model.environment import PackageList
from sgpu_decl.model.job import (
    OWNERSHIP,
    PERMISSIONS,
    RUN,
    STAGED,
    DesiredJob,
    JobHandle,
    JobRules,
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
from sgpu_decl.planner.estimate import gpus_of, worst_hours
from sgpu_decl.planner.field_changes import compare, covered, join, leaves
from sgpu_decl.planner.fingerprint import token
from sgpu_decl.planner.jobs.job_policy import effect_of, is_ours, reason_of
from sgpu_decl.planner.jobs.launched_run import launched_by, staged_inputs
from sgpu_decl.planner.plan_checks import place_of

_SHOWN = 5
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
            return change, checks
    change, checks = _changed(desired, resource, observed, state.lineage)
    if change.action in (Action.CREATE, Action.UPDATE) and desired.run is not None:
        before = resource.spec if resource is not None and not resource.gone else NO_FIELDS
        change = _with_run(change, desired.run, launched_by(before), state.package_lists)
        checks = (*checks, *_hours(desired, desired.run))
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
        return change, tuple(_namesakes(desired, observed))
    if handle.workspace != observed.workspace:
        refused = _elsewhere(desired, handle, observed)
        return _change(desired, Action.NO_OP, Reason.UP_TO_DATE), (refused,)
    if observed.document is None:
        differences = compare(resource.spec, desired.spec)
        fields = tuple(_field(desired, item, FieldEffect.IN_PLACE) for item in differences)
        return _created(
            desired, resource, lineage, Reason.PREVIOUS_LOST, _told(desired, fields)
        ), ()
    manager = desired.rules.manager(observed.document.fields)
    if manager is not None:
        refused = _managed(desired, handle, manager)
        return _change(desired, Action.NO_OP, Reason.UP_TO_DATE), (refused,)
    change, checks = _kept(desired, resource, observed.document, staged=observed.staged)
    seen = observed.document.fields
    checks = (*checks, *_owners(desired, seen), *_strangers(desired, resource, seen))
    if not change.idle:
        checks = (*checks, *_staging_moves(desired, resource, seen))
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
    return change, (_drift(desired, drifted, live),) if drifted else ()


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
        if item.drifted or (item.path in leading and item.path not in _DIGESTS)
    )


def _leading(desired: DesiredJob, differences: Iterable[FieldDifference | FieldChange]) -> set[str]:
    """Those that do not follow from others: where a run changed, so did the task that is made of
    it."""
    removed = {item.path: item.removed for item in differences}
    if not {RUN, STAGED}.intersection(path.partition(".")[0] for path in removed):
        return set(removed)
    return {path for path, gone in removed.items() if not _follows(desired, path, gone)}


def _follows(desired: DesiredJob, path: str, removed: bool) -> bool:  # noqa: FBT001 - private
    """Of a job that launches a notebook now, or did, the file says what its task is."""
    block, _, below = path.partition(".")
    if block not in desired.rules.of_run:
        return False
    if any(part in desired.rules.of_notebook for part in below.split(".")[1:2]):
        return False
    return desired.run is not None or removed


def _with_run(
    change: Change, run: DesiredRun, before: LaunchInputs | None, known: Mapping[str, PackageList]
) -> Change:
    """With what the run takes along, and how that differs from what was staged `before`."""
    assert change.launch is not None  # noqa: S101 - set by _change
    code, environment = run.code, run.environment
    staged = before or LaunchInputs(spec=NO_FIELDS, fingerprint="")
    return replace(
        change,
        depends_on=(environment.address,) if environment is not None else (),
        code=CodeChange(
            digest=code.digest, files=code.files, bytes=code.bytes, changed=code.changed
        )
        if code is not None and code.digest != staged.code_digest
        else None,
        environment=EnvironmentChange(
            digest=environment.digest,
            packages=difference(known.get(staged.packages_digest or ""), environment.packages)
            if before is not None
            else (),
            bytes=environment.bytes,
            bytes_to_stage=environment.bytes_to_stage,
        )
        if environment is not None and environment.digest != staged.environment_digest
        else None,
        launch=replace(change.launch, inputs=staged_inputs(run, change.launch.inputs)),
    )


def without_defaults(document: Spec, rules: JobRules, *specs: Spec) -> Spec:
    """Return what is seen, less what the workspace adds by itself where none of the specs that were
    asked for says anything."""
    named = {path for spec in specs for path, _ in leaves(spec.fields)}
    kept = _kept_below(document.fields, "", named, rules)
    # Who may see a job is left alone where the file says nothing of it.
    if not any(path == PERMISSIONS or path.startswith(PERMISSIONS + ".") for path in named):
        kept.pop(PERMISSIONS, None)
    return Spec.of(kept)


def _kept_below(
    value: Mapping[str, Json], parent: str, named: Collection[str], rules: JobRules
) -> dict[str, Json]:
    kept: dict[str, Json] = {}
    for key, below in value.items():
        path = join(parent, key)
        if path not in named and rules.is_default(path, below):
            continue
        if isinstance(below, Mapping) and below:
            inner = _kept_below(below, path, named, rules)
            if inner or path in named:
                kept[key] = inner
        else:
            kept[key] = below
    return kept


def _with_ignored(desired: DesiredJob, live: Spec, ignored: Collection[str]) -> Spec:
    """What is wanted, with what is seen at the paths whose changes are not acted upon."""
    if not ignored:
        return desired.spec
    return Spec.of(taking(desired.spec.fields, live.fields, ignored))


def ignored_by(spec: Mapping[str, Json], name: str, rules: JobRules) -> list[str]:
    """The paths of settings that the spec of a job leaves to others.

    Args:
        name: what the job is called in the file.
    """
    listed = _mapping(spec.get("lifecycle")).get("ignore_changes")
    named = map(str, listed) if isinstance(listed, list) else ()
    paths = itertools.chain.from_iterable(rules.setting_paths(path, name) for path in named)
    return [path for path in paths if not is_ours(path)]


def taking(
    mine: Mapping[str, Json], theirs: Mapping[str, Json], ignored: Collection[str], parent: str = ""
) -> dict[str, Json]:
    """What is mine, with what is theirs at the paths that are ignored."""
    result: dict[str, Json] = {}
    for key in mine.keys() | theirs.keys():
        path = join(parent, key)
        if covered(path, ignored):
            result |= {key: theirs[key]} if key in theirs else {}
        elif any(item.startswith(f"{path}.") for item in ignored):
            below = taking(_mapping(mine.get(key)), _mapping(theirs.get(key)), ignored, path)
            result |= {key: below} if below or key in mine else {}
        elif key in mine:
            result[key] = mine[key]
    return result


def _mapping(value: Json) -> Mapping[str, Json]:
    return value if isinstance(value, Mapping) else {}


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
    return replace(change, fields=fields, launch=replace(change.launch, token=mark))


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


def _namesakes(desired: DesiredJob, observed: ObservedJob) -> Iterator[Diagnostic]:
    if not observed.namesakes:
        return
    first, *more = observed.namesakes
    ids = f"the job {first}" if not more else f"{len(observed.namesakes)} jobs ({first}, …)"
    yield Diagnostic(
        code="namesake",
        severity=Severity.WARNING,
        address=str(desired.address),
        summary=f"`{observed.workspace}` has {ids} of the name `{desired.title}` already, and "
        "apply would make another one",
        hint=f"if it is this one, take it over with `sgpu adopt {desired.address} {first}`; "
        "or give this one another `name`",
        place=place_of(desired.places, "name"),
    )


def _hours(desired: DesiredJob, run: DesiredRun) -> Iterator[Diagnostic]:
    """What one launch may take: a schedule repeats it."""
    spec = run.spec.fields
    gpus, hours = gpus_of(spec), worst_hours(spec)
    if gpus == 0:
        return
    takes = "has no limit on GPU hours"
    if hours is not None:
        takes = f"takes at most {hours:,.6g} GPU hour{'' if hours == 1 else 's'}"
    yield Diagnostic(
        code="launch_hours",
        severity=Severity.INFO,
        address=str(desired.address),
        summary=f"each launch {takes}, of {gpus:,} GPU{'s' if gpus > 1 else ''}",
        hint=None if hours is not None else f"`timeout` of `{run.address}` is a limit",
        place=place_of(desired.places, f"{RUN}.timeout"),
    )


def _elsewhere(desired: DesiredJob, handle: JobHandle, observed: ObservedJob) -> Diagnostic:
    return Diagnostic(
        code="other_workspace",
        severity=Severity.ERROR,
        address=str(desired.address),
        summary=f"it is the job {handle.id} of `{handle.workspace}`, and the settings here lead to "
        f"`{observed.workspace}`",
        hint="use a target of its own for each workspace; or destroy it there first, or forget it "
        f"with `sgpu state rm {desired.address}`",
        place=place_of(desired.places, "backend"),
    )


def _managed(desired: DesiredJob, handle: JobHandle, manager: str) -> Diagnostic:
    return Diagnostic(
        code="managed_by_bundle",
        severity=Severity.ERROR,
        address=str(desired.address),
        summary=f"the job {handle.id} is managed by {manager}: two tools would change it in turn",
        hint="take it out of there (`databricks bundle deployment unbind KEY`) and remove "
        "`deployment` from its settings if they still have it, or forget it with "
        f"`sgpu state rm {desired.address}` and leave it out of the file",
        place=place_of(desired.places, "name"),
    )


def _owners(desired: DesiredJob, document: Mapping[str, Json]) -> Iterator[Diagnostic]:
    """Whom the job belongs to and runs as, where that is not who made it: the file says nothing of
    it."""
    who = _mapping(document.get(OWNERSHIP))
    creator, owner, runs_as = (who.get(key) for key in ("creator", "owner", "runs_as"))
    said = []
    if creator and owner and owner != creator:
        said.append(f"`{creator}` made the job, and `{owner}` owns it now")
    if owner and runs_as and runs_as != owner:
        said.append(f"its launches run as `{runs_as}`, and `{owner}` owns it")
    if said:
        yield Diagnostic(
            code="job_owner_changed",
            severity=Severity.INFO,
            address=str(desired.address),
            summary=f"{'; '.join(said)}: somebody set that in the workspace",
            hint="apply leaves it as it is. Whoever it runs as has to read its files and secrets",
            place=place_of(desired.places, "name"),
        )


def _staging_moves(
    desired: DesiredJob, resource: Resource, document: Mapping[str, Json]
) -> Iterator[Diagnostic]:
    """That an apply stages the job in a folder of another user than before."""
    before, after = map(desired.rules.staged_by, (resource.spec.fields, desired.spec.fields))
    owner = _mapping(document.get(OWNERSHIP)).get("owner")
    if before and after and after not in (before, owner):
        reader = f"its owner `{owner}`" if owner else "its owner"
        yield Diagnostic(
            code="job_staging_moves",
            severity=Severity.WARNING,
            address=str(desired.address),
            summary=f"the files of the job move from the staging folder of `{before}` to that of "
            f"`{after}`, and its launches run as {reader} and may not read them there",
            hint="name a folder that all may read as `backend.staging`, such as "
            f"`/Workspace/Shared/sgpu`; or give {reader} the right to read the staging folder of "
            f"`{after}`",
            place=place_of(desired.places, "backend"),
        )


def _strangers(
    desired: DesiredJob, resource: Resource, document: Mapping[str, Json]
) -> Iterator[Diagnostic]:
    """Who else may change the job, where the file says nothing of permissions: they are left alone
    then, and told."""
    specs = (desired.spec.fields, resource.spec.fields)
    ignored = ignored_by(desired.spec.fields, desired.address.name, desired.rules)
    if any(PERMISSIONS in spec for spec in specs) or covered(PERMISSIONS, ignored):
        return
    granted = _mapping(document.get(PERMISSIONS))
    names = sorted(
        f"`{name}`"
        for levels in granted.values()
        for name, level in _mapping(levels).items()
        if level in desired.rules.changing
    )
    if names:
        more = len(names) - _SHOWN
        listed = ", ".join(names[:_SHOWN]) + (f" and {more} more" if more > 0 else "")
        yield Diagnostic(
            code="job_shared",
            severity=Severity.WARNING,
            address=str(desired.address),
            summary=f"{listed} may change the job in the workspace, and the file does not say so",
            hint="say it with `permissions`, such as `permissions: [{level: manage, user: NAME}]`, "
            "which takes it from all others; or take it from them in the workspace",
            place=place_of(desired.places, "name"),
        )


def _drift(desired: DesiredJob, paths: list[str], live: Spec) -> Diagnostic:
    settings = {**dict(leaves(live.fields)), **dict(leaves(desired.spec.fields))}
    named = (
        desired.rules.field(path, settings).path if path in settings else path for path in paths
    )
    fields = list(dict.fromkeys(named))
    more = len(fields) - _SHOWN
    listed = ", ".join(f"`{field}`" for field in fields[:_SHOWN])
    return Diagnostic(
        code="live_drifted",
        severity=Severity.WARNING,
        address=str(desired.address),
        summary=f"it was edited in the workspace: {listed}"
        + (f" and {more} more" if more > 0 else ""),
        hint="applying puts back what the file says; to keep an edit, write it into the file, or "
        "name it in `lifecycle.ignore_changes`",
        place=place_of(desired.places, paths[0]),
    )
