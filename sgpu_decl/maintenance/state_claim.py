"""`sgpu state claim`: a shared state gets another repository, or another folder of it."""

from sgpu_decl.errors import SgpuError
from sgpu_decl.facts.project import Project
from sgpu_decl.maintenance.state_migration import no_shared_state
from sgpu_decl.model.project_home import ProjectHome
from sgpu_decl.storing.stores import shared_store

__all__ = ["claim"]


def claim(project: Project) -> ProjectHome:
    """Record that the shared state belongs to the repository and the folder of the project.

    Raises:
        SgpuError: the project names no shared store, nothing is recorded there yet, or this is no
            checkout of a repository that others can reach.
    """
    place, homes = project.shared_place, project.homes()
    if place is None:
        raise no_shared_state("a state of this machine belongs to its folder")
    if not homes:
        raise SgpuError(
            f"`{project.root}` is no git checkout with a remote that other machines can reach",
            hint="add one with `git remote add origin URL`",
            code="no_remote",
        )
    store = shared_store(place, project.state_dir, commit=project.commit)  # which compares nothing
    try:
        store.claim(homes[0], patience=project.patience)
    finally:
        store.close()
    return homes[0]
