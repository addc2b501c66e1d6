"""Garbage collection of the stores of code and environments, and owners that are not found."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import platformdirs

from sgpu_decl.atomic_files import delete_left
from sgpu_decl.content.store.content_store import ContentStore
from sgpu_decl.environments.declared.build_lock import builds_in, remove_leftovers
from sgpu_decl.model.owner import Owner, Presence
from sgpu_decl.planning.project import Project
from sgpu_decl.scratch_folders import delete_left_scratch
from sgpu_decl.storing.stores import open_state_store


@dataclass(frozen=True, slots=True, kw_only=True)
class UnseenOwner:
    """An owner that is not found, and the record of what is kept for it. `last_seen` is in seconds
    since the epoch."""

    name: str
    record: str
    missing: bool
    last_seen: float


def collect_store(store: ContentStore[Any], *, dry_run: bool) -> int:
    """Delete what nothing refers to, or only count it; returns the bytes. Raises SgpuError."""
    return store.collect(_presence, dry_run=dry_run)


def delete_leftovers(project: Project) -> None:
    """Delete what killed processes left half-written beside the state, in caches, where
    environments are built, and in the temporary folder."""
    caches = Path(platformdirs.user_cache_path("sgpu"))
    for top in (project.state_dir.parent, project.state_dir, caches):
        for folder in (top, *(path for path in top.glob("*") if path.is_dir())):
            delete_left(folder)
    delete_left_scratch()
    remove_leftovers(builds_in(project.environments.objects.parent))


def unseen_owners(store: ContentStore[Any]) -> Iterator[UnseenOwner]:
    """The owners that are not found and for which a store keeps objects. Raises SgpuError."""
    for reference, presence in store.references.absent_owners(_presence):
        yield UnseenOwner(
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
