"""Garbage collection: the files of ended attempts, and code and environments without references."""

import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from operator import attrgetter
from pathlib import Path
from typing import Any

import platformdirs

from sgpu_decl.agent.attempt.host_record import delete_useless_records
from sgpu_decl.applying.recovery import refresh
from sgpu_decl.applying.release import free_old_versions, record_references
from sgpu_decl.atomic_files import delete_left
from sgpu_decl.content.store.content_store import ContentStore
from sgpu_decl.content.store.references import MISSING_SECONDS
from sgpu_decl.environments.declared.build_lock import builds_in, remove_leftovers
from sgpu_decl.errors import BackendError, SgpuError
from sgpu_decl.model.address import Kind
from sgpu_decl.model.attempt import AttemptRef
from sgpu_decl.model.backend_kinds import DEFAULT
from sgpu_decl.model.jsonable import Json
from sgpu_decl.model.owner import Owner, Presence
from sgpu_decl.model.state import Attempt, State
from sgpu_decl.model.times import to_text
from sgpu_decl.planner.kept_attempts import UNKNOWN, GcRule, Keep, kept, surplus
from sgpu_decl.planner.needs import needs_of
from sgpu_decl.planning.project import Project
from sgpu_decl.scratch_folders import delete_left_scratch
from sgpu_decl.storing.state_folder import release_space, reserve_space
from sgpu_decl.storing.state_store import StateWriter
from sgpu_decl.storing.stores import open_state_store
from sgpu_decl.system_errors import advice, error_text


@dataclass(frozen=True, slots=True, kw_only=True)
class _Garbage:
    """The attempts that go, each with its bytes, and those that their number and age would let go,
    each with the reason why it stays."""

    sizes: Mapping[AttemptRef, int]
    kept: Mapping[AttemptRef, Keep]


class _Problems:
    """What gc could not look at or delete. It goes on, and says it."""

    def __init__(self) -> None:
        self.found: dict[str, str | None] = {}  # the hint of each summary

    @contextmanager
    def noted(
        self, kind: type[SgpuError] = BackendError, *, unless: str | None = None
    ) -> Iterator[None]:
        """Note an error of a kind, or of the operating system; `unless` is a code of others."""
        try:
            yield
        except kind as error:
            if error.code == unless:
                raise
            self.found.setdefault(error.message, error.hint)
        except OSError as error:
            self.found.setdefault(error_text(error), advice(error))


def collect(
    project: Project,
    rule: GcRule,
    *,
    dry_run: bool,
    only: Collection[str] | None,
    now: datetime,
) -> dict[str, Json]:
    """Free what the rule lets go, then code and environments that no project refers to.

    Args:
        only: the attempts that may be freed, written `train#8`; None for all.

    Returns:
        `attempts` (written `train#8`), `bytes` of their folders, `code_bytes` and
        `environment_bytes` of the stores. `freed` has the `bytes` of each `attempt`, `kept` each
        `attempt` that is old enough to go, and the `reason` why it stays. `not_found` lists
        projects and saved plans that are not found here: `path`, the `record` of what is kept for
        them, and `kept_until`, null where they cannot be looked for and all is kept. `problems`
        has a `summary` and a `hint` of each thing that could not be looked at or deleted.
    """
    problems = _Problems()
    found = _Garbage(sizes={}, kept={})
    release_space(project.state_dir)
    if project.states.read() is None:
        return _answer(found, 0, (0, 0), (), problems)
    with project.writing("gc") as writer:
        with problems.noted():
            refresh(writer, project.backend)
        recorded = project.states.read_all()
        attempts = recorded[1] if recorded else ()
        found = _garbage(project, writer.state, attempts, rule, now, problems)
        if only is not None:
            sizes = {ref: size for ref, size in found.sizes.items() if str(ref) in only}
            found = _Garbage(sizes=sizes, kept=found.kept)
        total = sum(found.sizes.values())
        if not dry_run:
            found, total = _free(project, writer, attempts, found, problems)
        with suppress(SgpuError):  # what was recorded before each launch keeps all that is needed
            record_references(project, writer.state.lineage, needs_of(writer.state))
    if not dry_run:
        delete_useless_records()
        with problems.noted():
            _delete_leftovers(project)
        reserve_space(project.state_dir)
    content: tuple[ContentStore[Any], ...] = (project.store, project.environments)
    stores, unseen = [0, 0], dict[str, _UnseenOwner]()
    damaged: SgpuError | None = None  # somebody has to look at it, so the command fails
    for at, store in enumerate(content):
        try:
            with problems.noted(SgpuError, unless="store_record_damaged"):
                stores[at] = _collect_store(store, dry_run=dry_run)
                unseen |= {owner.record: owner for owner in _unseen_owners(store)}
        except SgpuError as error:
            damaged = error
    if damaged is not None:
        raise damaged
    return _answer(found, total, stores, sorted(unseen.values(), key=attrgetter("name")), problems)


def _garbage(
    project: Project,
    state: State,
    attempts: Collection[Attempt],
    rule: GcRule,
    now: datetime,
    problems: _Problems,
) -> _Garbage:
    candidates = surplus(attempts, rule, now)
    sizes = _sizes(project, state, candidates, problems)
    left = {one.ref.address for one in candidates if one.ref in sizes}
    read = needs_of(state).outputs
    outputs: dict[AttemptRef, str | None] = {}
    if not rule.everything:  # an output is looked for in those runs alone that lose something
        outputs = {
            one.ref: _output_place(project, state, one)
            for one in attempts
            if one.ref.address in left and not one.state.active
        }
    reasons = kept(attempts, rule, read=read, outputs=outputs)
    stays = {ref: reasons[ref] for ref in sizes if ref in reasons}
    goes: dict[AttemptRef, int] = {}
    for one in candidates:
        if one.ref in stays or one.ref not in sizes:
            continue
        size = sizes[one.ref]
        # What another machine left is there; here, only another state's may have its name.
        elsewhere = _elsewhere(project, state, one)
        if size is None or elsewhere is None:
            stays[one.ref] = Keep.UNREACHABLE
        elif not elsewhere:
            goes[one.ref] = size
    return _Garbage(sizes=goes, kept=dict(sorted(stays.items())))


def _sizes(
    project: Project, state: State, candidates: Iterable[Attempt], problems: _Problems
) -> dict[AttemptRef, int | None]:
    by_backend: dict[str, list[Attempt]] = {}
    for attempt in candidates:
        by_backend.setdefault(attempt.backend, []).append(attempt)
    sizes: dict[AttemptRef, int | None] = {}
    for kind, group in by_backend.items():
        found: Mapping[AttemptRef, int | None] = dict.fromkeys(one.ref for one in group)
        with problems.noted():
            storage = project.backend(kind).storage
            found = storage.sizes([state.launch_of(one) for one in group])
        sizes |= found
    return sizes


def _output_place(project: Project, state: State, attempt: Attempt) -> str | None:
    try:
        return project.backend(attempt.backend).attempts.output_place(state.launch_of(attempt))
    except BackendError:
        return UNKNOWN


def _elsewhere(project: Project, state: State, attempt: Attempt) -> bool | None:
    """Whether an attempt cannot be asked from here; None where its platform does not answer."""
    try:
        attempts = project.backend(attempt.backend).attempts
        return attempts.elsewhere(state.launch_of(attempt)) is not None
    except BackendError:
        return None


def _free(
    project: Project,
    writer: StateWriter,
    attempts: Iterable[Attempt],
    found: _Garbage,
    problems: _Problems,
) -> tuple[_Garbage, int]:
    """Delete what goes, and what only that shared. Returns what was freed, and all bytes. Another
    process that took over the lock of one that was frozen may have launched what needs it."""
    state = writer.state
    by_ref = {one.ref: one for one in attempts}
    freed: dict[AttemptRef, int] = {}
    stays = dict(found.kept)
    for ref in found.sizes:
        writer.check_held()
        stays[ref] = Keep.UNREACHABLE  # while this user may not delete it, or its platform is away
        with problems.noted():
            size = project.backend(by_ref[ref].backend).storage.free(state.launch_of(by_ref[ref]))
            del stays[ref]
            if size or not found.sizes[ref]:  # a platform may not say how large its files are
                freed[ref] = size
    jobs = [one for one in state.resources.values() if one.address.kind is Kind.JOB]
    for job in jobs:
        free_old_versions(job, state.lineage, project.job_backend)
    # of all that ever ran: what an earlier call could not free may be free now
    kinds = {DEFAULT, *(one.backend for one in by_ref.values()), *(job.backend for job in jobs)}
    kinds |= {one.launch.backend for one in state.intents if one.launch is not None}
    total = sum(freed.values())
    for kind in sorted(kinds):
        with problems.noted():  # an area where it failed stays due
            total += project.backend(kind).storage.collect()
    return _Garbage(sizes=freed, kept=dict(sorted(stays.items()))), total


@dataclass(frozen=True, slots=True, kw_only=True)
class _UnseenOwner:
    """An owner that is not found, and the record of what is kept for it. `last_seen` is in seconds
    since the epoch."""

    name: str
    record: str
    missing: bool
    last_seen: float


def _collect_store(store: ContentStore[Any], *, dry_run: bool) -> int:
    """Delete what nothing refers to, or only count it; returns the bytes. Raises SgpuError."""
    return store.collect(_presence, dry_run=dry_run)


def _delete_leftovers(project: Project) -> None:
    """Delete what killed processes left half-written beside the state, in caches, where
    environments are built, and in the temporary folder."""
    caches = Path(platformdirs.user_cache_path("sgpu"))
    for top in (project.state_dir.parent, project.state_dir, caches):
        for folder in (top, *(path for path in top.glob("*") if path.is_dir())):
            delete_left(folder)
    delete_left_scratch()
    remove_leftovers(builds_in(project.environments.objects.parent))


def _unseen_owners(store: ContentStore[Any]) -> Iterator[_UnseenOwner]:
    """The owners that are not found and for which a store keeps objects. Raises SgpuError."""
    for reference, presence in store.references.absent_owners(_presence):
        yield _UnseenOwner(
            name=reference.owner.path or reference.owner.store or reference.record.name,
            record=os.fspath(reference.record),
            missing=presence is Presence.MISSING,
            last_seen=reference.last_seen,
        )


def _presence(owner: Owner) -> Presence:
    """Ask the store of a state whether the state is there."""
    store = open_state_store(owner.store or "")
    if store is None or owner.lineage is None:
        return Presence.UNKNOWN
    try:
        return store.presence(owner.lineage)
    finally:
        store.close()


def _answer(
    found: _Garbage,
    total: int,
    stores: Sequence[int],
    owners: Iterable[_UnseenOwner],
    problems: _Problems,
) -> dict[str, Json]:
    return {
        "attempts": [str(ref) for ref in found.sizes],
        "bytes": total,
        "code_bytes": stores[0],
        "environment_bytes": stores[1],
        "freed": [{"attempt": str(ref), "bytes": size} for ref, size in found.sizes.items()],
        "kept": [{"attempt": str(ref), "reason": why.value} for ref, why in found.kept.items()],
        "not_found": [_not_found(owner) for owner in owners],
        "problems": [{"summary": why, "hint": hint} for why, hint in problems.found.items()],
    }


def _not_found(owner: _UnseenOwner) -> dict[str, Json]:
    until = owner.last_seen + MISSING_SECONDS
    return {
        "path": owner.name,
        "record": owner.record,
        "kept_until": to_text(datetime.fromtimestamp(until, UTC)) if owner.missing else None,
    }
