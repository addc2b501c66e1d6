"""What a plan says of jobs beside their changes: who else has to do with them, and what their
launches may take."""

from collections.abc import Iterator, Mapping

from sgpu_decl.diagnostics.diagnostic import Diagnostic, Severity
from sgpu_decl.model.job import (
    ONE,
    OWNERSHIP,
    PERMISSIONS,
    RUN,
    TASKS,
    DesiredJob,
    JobHandle,
    ObservedJob,
)
from sgpu_decl.model.jsonable import Json, Spec
from sgpu_decl.model.state import Resource
from sgpu_decl.planner.estimate import gpus_of, worst_hours
from sgpu_decl.planner.field_changes import covered, leaves
from sgpu_decl.planner.jobs.ignored_settings import as_mapping, ignored_by
from sgpu_decl.planner.plan_checks import place_of
from sgpu_decl.text.lookups import LOOKUP_START

_SHOWN = 5
RUN_AS = "run_as"


def namesakes(desired: DesiredJob, observed: ObservedJob) -> Iterator[Diagnostic]:
    if not observed.namesakes:
        return
    first, *more = observed.namesakes
    manager = observed.namesakes[first]
    ids = f"the job {first}" if not more else f"{len(observed.namesakes)} jobs ({first}, …)"
    yield Diagnostic(
        code="namesake",
        severity=Severity.WARNING,
        address=str(desired.address),
        summary=f"`{observed.workspace}` has {ids} of the name `{desired.title}` already, and "
        "apply would make another one",
        hint=f"if it is this one, take it over with `sgpu adopt {desired.address} {first}`; "
        "or give this one another `name`"
        if manager is None
        else f"it is managed by {manager}: give this one another `name`, or see `docs/bundles.md`",
        place=place_of(desired.places, "name"),
    )


def launch_hours(desired: DesiredJob) -> Iterator[Diagnostic]:
    """What one launch may take: a schedule repeats it."""
    specs = [run.spec.fields for run in desired.runs]
    gpus = max(map(gpus_of, specs), default=0)
    if gpus == 0:
        return
    hours = [worst_hours(spec) for spec in specs]
    known = [amount for amount in hours if amount is not None]
    takes = "has no limit on GPU hours"
    if len(known) == len(hours):
        total = sum(known)
        takes = f"takes at most {total:,.6g} GPU hour{'' if total == 1 else 's'}"
    unlimited = next(
        (run for run, most in zip(desired.runs, hours, strict=True) if most is None), None
    )
    task = next(iter(desired.launches))
    yield Diagnostic(
        code="launch_hours",
        severity=Severity.INFO,
        address=str(desired.address),
        summary=f"each launch {takes}, of {gpus:,} GPU{'s' if gpus > 1 else ''}"
        + (" at once" if len(specs) > 1 and gpus else ""),
        hint=f"`timeout` of `{unlimited.address}` is a limit" if unlimited is not None else None,
        place=place_of(desired.places, f"{RUN}.timeout" if task == ONE else TASKS),
    )


def elsewhere(desired: DesiredJob, handle: JobHandle, observed: ObservedJob) -> Diagnostic:
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


def managed(desired: DesiredJob, handle: JobHandle, manager: str) -> Diagnostic:
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


def unseen(desired: DesiredJob, handle: JobHandle, why: str) -> Diagnostic:
    return Diagnostic(
        code="job_unseen",
        severity=Severity.WARNING,
        address=str(desired.address),
        summary=f"the job {handle.id} is compared with what was applied last, so that this plan "
        f"does not show what was changed there: {why}",
        hint="`permissions` with `level: view` of the job let others plan it",
        place=place_of(desired.places, "permissions"),
    )


def cannot_read(desired: DesiredJob) -> Iterator[Diagnostic]:
    """Warn if launches run as a user who usually cannot read the staging folder of the job."""
    runner = next(iter(as_mapping(desired.spec.fields.get(RUN_AS)).values()), None)
    if runner is None or LOOKUP_START in str(runner):  # whom it is has an error of its own
        return
    staged_by = desired.rules.staged_by(desired.spec.fields)
    if staged_by is not None and staged_by != runner:
        yield Diagnostic(
            code="run_as_cannot_read",
            severity=Severity.WARNING,
            address=str(desired.address),
            summary=f"launches run as `{runner}`, and sgpu stages their files in the folder of "
            f"`{staged_by}`, which others usually cannot read",
            hint="set `backend.staging` to a folder that all may read, such as "
            f"`/Workspace/Shared/sgpu`; or give `{runner}` the right to read the folder",
            place=place_of(desired.places, RUN_AS),
        )


def owners(desired: DesiredJob, document: Mapping[str, Json]) -> Iterator[Diagnostic]:
    """Whom the job belongs to and runs as, where that is not who made it, and the file says nothing
    of it."""
    who = as_mapping(document.get(OWNERSHIP))
    creator, owner, runs_as = (who.get(key) for key in ("creator", "owner", "runs_as"))
    if RUN_AS in desired.spec.fields:
        runs_as = None
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
            hint="apply does not change that. The user that launches run as has to be able to read "
            "the files and secrets of the job",
            place=place_of(desired.places, "name"),
        )


def staging_moves(
    desired: DesiredJob, resource: Resource, document: Mapping[str, Json]
) -> Iterator[Diagnostic]:
    """Warn if an apply stages the job in the folder of another user than before."""
    before, after = map(desired.rules.staged_by, (resource.spec.fields, desired.spec.fields))
    owner = as_mapping(document.get(OWNERSHIP)).get("owner")
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


def strangers(
    desired: DesiredJob, resource: Resource, document: Mapping[str, Json]
) -> Iterator[Diagnostic]:
    """Who else may change the job, where the file says nothing of permissions: they are left alone
    then, and told."""
    specs = (desired.spec.fields, resource.spec.fields)
    ignored = ignored_by(desired.spec.fields, desired.address.name, desired.rules)
    if any(PERMISSIONS in spec for spec in specs) or covered(PERMISSIONS, ignored):
        return
    granted = as_mapping(document.get(PERMISSIONS))
    names = sorted(
        f"`{name}`"
        for levels in granted.values()
        for name, level in as_mapping(levels).items()
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
            hint="write `permissions`, such as `permissions: [{level: manage, user: NAME}]`: then "
            "apply removes the rights of all others; or remove their rights in the workspace",
            place=place_of(desired.places, "name"),
        )


def drift(desired: DesiredJob, paths: list[str], live: Spec) -> Diagnostic:
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
        summary=f"it was edited {desired.rules.where}: {listed}"
        + (f" and {more} more" if more > 0 else ""),
        hint="applying puts back what the file says; to keep an edit, write it into the file, or "
        "name it in `lifecycle.ignore_changes`",
        place=place_of(desired.places, paths[0]),
    )
