"""Garbage collection: the files of ended attempts, and code and environments without references."""

from collections import defaultdict
from datetime import UTC, datetime

from sgpu_decl.agent.host_record import delete_useless_records
from sgpu_decl.applying.recovery import refresh
from sgpu_decl.applying.release import free_old_versions
from sgpu_decl.applying.store_references import record_references
from sgpu_decl.facts.opened_project import OpenedProject
from sgpu_decl.maintenance.store_garbage import UnseenOwner, collect_stores, unseen_owners
from sgpu_decl.model.address import Kind
from sgpu_decl.model.attempt import AttemptRef
from sgpu_decl.model.jsonable import Json
from sgpu_decl.model.state import KEEP_LAST, Attempt
from sgpu_decl.model.times import to_text
from sgpu_decl.planning.needed_attempts import needed_by_active
from sgpu_decl.planning.needs import needs_of
from sgpu_decl.staging.references import MISSING_SECONDS


def garbage(
    attempts: list[Attempt], *, keep_last: int | None, older_than: float | None, now: datetime
) -> list[Attempt]:
    """Choose the ended attempts to free: beyond the newest `keep_last` of each run, and older than
    `older_than` seconds where an age is given. With an age alone, age alone decides. What active
    attempts look at stays."""
    spared = keep_last if keep_last is not None else (0 if older_than is not None else KEEP_LAST)
    by_run: dict[object, list[Attempt]] = defaultdict(list)
    for attempt in attempts:
        by_run[attempt.ref.address].append(attempt)
    needed = needed_by_active(attempts)
    surplus = []
    for history in by_run.values():
        newest_first = sorted(history, key=lambda item: item.ref.number, reverse=True)
        for attempt in newest_first[spared:]:
            if attempt.state.active or attempt.ref in needed:
                continue
            ended = attempt.ended_at or attempt.created_at
            if older_than is None or (now - ended).total_seconds() > older_than:
                surplus.append(attempt)
    return sorted(surplus, key=lambda item: item.ref)


def collect(
    project: OpenedProject,
    *,
    keep_last: int | None,
    older_than: float | None,
    dry_run: bool,
    now: datetime,
) -> dict[str, Json]:
    """Free what `garbage` chooses, then code and environments that no project refers to.

    Returns:
        `attempts` (written `train#8`), `bytes` of their folders, `code_bytes` and
        `environment_bytes` of the stores. `not_found` lists projects and saved plans that are not
        found here: `path`, the `record` of what is kept for them, and `kept_until`, null where
        they cannot be looked for and all is kept.
    """
    backend = project.backend
    if project.states.read() is None:
        return {
            "attempts": [],
            "bytes": 0,
            "code_bytes": 0,
            "environment_bytes": 0,
            "not_found": [],
        }
    with project.writing("gc") as writer:
        refresh(writer, backend)
        recorded = project.states.read_all()
        attempts = list(recorded[1]) if recorded else []
        surplus = garbage(attempts, keep_last=keep_last, older_than=older_than, now=now)
        launch_of = writer.state.launch_of
        freed: list[AttemptRef] = []
        total = 0
        for attempt in surplus:
            size = backend(attempt.backend).storage.size(launch_of(attempt))
            if size == 0:
                continue
            # What another machine left is there; here, only another state's may have its name.
            if backend(attempt.backend).attempts.elsewhere(launch_of(attempt)) is not None:
                continue
            freed.append(attempt.ref)
            total += size if dry_run else backend(attempt.backend).storage.free(launch_of(attempt))
        if not dry_run:
            jobs = [
                resource
                for resource in writer.state.resources.values()
                if resource.address.kind is Kind.JOB
            ]
            for job in jobs:
                free_old_versions(job, writer.state.lineage, project.job_backend)
            # of all that ever ran: what an earlier call could not free may be free now
            kinds = {item.backend for item in attempts} | {item.backend for item in jobs}
            total += sum(backend(kind).storage.collect() for kind in kinds)
            record_references(project, writer.state.lineage, needs_of(writer.state))
    if not dry_run:
        delete_useless_records()
    code, environments = (0, 0) if dry_run else collect_stores(project)
    return {
        "attempts": [str(ref) for ref in freed],
        "bytes": total,
        "code_bytes": code,
        "environment_bytes": environments,
        "not_found": [_not_found(owner) for owner in unseen_owners(project)],
    }


def _not_found(owner: UnseenOwner) -> dict[str, Json]:
    until = owner.last_seen + MISSING_SECONDS
    return {
        "path": owner.name,
        "record": owner.record,
        "kept_until": to_text(datetime.fromtimestamp(until, UTC)) if owner.missing else None,
    }
