"""What the stores of code and environments keep for this state and for others."""

import os

from sgpu_decl.model.owner import Owner
from sgpu_decl.planner.needs import Needs
from sgpu_decl.planning.project import Project


def record_references(project: Project, lineage: str, needs: Needs) -> None:
    """Record what the state of that lineage needs, so that no other project's gc takes it. The
    caller holds the lock of the state: of two callers, the later one knows more.

    Raises:
        SgpuError: that cannot be written.
    """
    file = project.states.file
    owner = Owner(
        path=None if file is None else os.fspath(file), lineage=lineage, store=project.states.url
    )
    project.store.refer(owner, needs.code)
    if needs.environments or project.environments.objects.is_dir():
        project.environments.refer(owner, needs.environments)
