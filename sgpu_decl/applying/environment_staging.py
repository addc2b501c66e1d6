"""The environments of a plan: stored, built, and copied to where ranks look for them."""

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING

from sgpu_decl.applying.launch_records import launch_of
from sgpu_decl.backends.launch_request import LaunchRequest
from sgpu_decl.diagnostics.diagnostic import Diagnostic
from sgpu_decl.environments.captured.capture import capture
from sgpu_decl.environments.interpreters import NoPython
from sgpu_decl.errors import StalePlan
from sgpu_decl.model.address import Kind
from sgpu_decl.model.plan import Change, Plan
from sgpu_decl.model.step_progress import Progress, Quiet
from sgpu_decl.planning.environment_facts import FromLock, Recipe
from sgpu_decl.planning.job_spec import requests_in
from sgpu_decl.planning.pinned_content import launched_environments
from sgpu_decl.planning.project import Project

if TYPE_CHECKING:
    from sgpu_decl.environments.environment_store import EnvironmentStore

Findings = tuple[Diagnostic, ...]


def stage_environments(
    project: Project,
    plan: Plan,
    recipes: Mapping[str, Recipe],
    progress: Progress | None = None,
) -> Findings:
    """Copy what the plan's launches share to where their ranks look for it: environments, and on
    other machines the code, which is in the store already.

    An environment that is neither in the store nor among `recipes` is built again from the plan.

    Returns:
        Warnings.

    Raises:
        StalePlan: what is here now is not what was planned.
        SgpuError: it cannot be stored, built or brought there.
    """
    progress = progress or Quiet()
    findings: list[Diagnostic] = []
    planned = {
        change.launch.inputs.environment_digest: change
        for change in plan.changes
        if change.kind is Kind.ENVIRONMENT and change.launch
    }
    for digest in launched_environments(plan):
        if not project.environments.touch(digest, progress):
            recipe = recipes.get(digest) or _rebuild(project, planned.get(digest), progress)
            if recipe is None or _digest(recipe) != digest:
                raise StalePlan(
                    "the environment here is not the one that was planned",
                    hint="plan again; `sgpu env diff` shows what differs",
                    code="environment_differs",
                )
            findings += make_environment(project.environments, recipe, progress)
    by_backend: dict[str, list[LaunchRequest]] = {}
    for change in plan.changes:
        if requests := _requests(plan, change):
            by_backend.setdefault(change.backend, []).extend(requests)
    for kind, requests in by_backend.items():
        findings += project.backend(kind).launcher.prepare(requests, progress)
    return tuple(findings)


def _requests(plan: Plan, change: Change) -> list[LaunchRequest]:
    if change.launches:
        return [LaunchRequest(record=launch_of(plan, change))]
    if not change.stages or change.launch is None:
        return []
    requests = requests_in(
        change.launch.inputs.spec,
        change.address,
        backend=change.backend,
        owner=change.launch.owner,
        lineage=plan.lineage,
    )
    return [request for request in requests.values() if not request.of_file]


def make_environment(store: "EnvironmentStore", recipe: Recipe, progress: Progress) -> Findings:
    """Have an environment in the store of this machine, captured or built. Returns warnings. Raises
    SgpuError."""
    if isinstance(recipe, FromLock):
        from sgpu_decl.environments.declared.environment_build import build

        return build(
            recipe.lock,
            recipe.python,
            store,
            progress,
            folder=recipe.folder,
            environ=os.environ,
        ).warnings
    store.put(recipe, progress)
    return ()


def _rebuild(project: Project, planned: Change | None, progress: Progress) -> "Recipe | None":
    """From what a plan says alone: of another process, or another machine."""
    if planned is None or planned.launch is None:
        return None

    spec = planned.launch.inputs.spec.fields
    folder = (project.root / planned.launch.owner).parent
    python_field = spec.get("python")
    project.guarded = False  # what is made here is about to be launched
    python = project.pythons().find(python_field if isinstance(python_field, str) else None, folder)
    if isinstance(python, NoPython):
        raise python.error
    lock = spec.get("lock")
    if isinstance(lock, Mapping):
        from sgpu_decl.environments.declared.lock import Lock

        return FromLock(lock=Lock.from_json(lock), python=python, folder=folder)

    captured, _ = capture(python.executable, program=python.program, progress=progress)
    return captured


def _digest(recipe: Recipe) -> str:
    return recipe.lock.digest if isinstance(recipe, FromLock) else recipe.digest
