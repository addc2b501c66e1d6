"""`sgpu state migrate`: the state of this machine goes to the store that the project names."""

from typing import TYPE_CHECKING

from sgpu_decl.errors import SgpuError
from sgpu_decl.facts.project import Project
from sgpu_decl.model.launch import LaunchRecord
from sgpu_decl.storing.migration import migrate as copy_to
from sgpu_decl.storing.stores import local_store

if TYPE_CHECKING:
    from sgpu_decl.storing.migration import Migrated


def migrate(project: Project) -> "Migrated":
    """Copy the state of this machine, with its history, to the shared store. Runs that were
    launched here are known there as runs of this machine.

    Raises:
        SgpuError: the project names no shared store, there is nothing to copy, or the store has
            another state of this project.
    """
    place = project.shared_place
    if place is None:
        raise no_shared_state("there is no store to copy the state of this machine to")

    def site(launch: LaunchRecord) -> str | None:
        return project.backend(launch.backend).launcher.site(launch)

    shared = project.open_shared(place)
    try:
        return copy_to(local_store(project.state_dir), shared, site=site, patience=project.patience)
    finally:
        shared.close()


def no_shared_state(why: str) -> SgpuError:
    """The error of a command that is about a shared state alone."""
    return SgpuError(
        f"the project names no shared state: {why}",
        hint="name its store with `state` in `sgpu.yml`",
        code="no_shared_state",
    )
