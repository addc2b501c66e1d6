"""The code and the environments behind a plan, in the stores of this machine: code that is missing
is built again from the tree that the plan names."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from sgpu_decl.code.file_digests import HashCache
from sgpu_decl.code.snapshot import Snapshot, own_outputs, snapshot
from sgpu_decl.config.run_blocks import Code
from sgpu_decl.errors import StalePlan
from sgpu_decl.model.owner import Owner
from sgpu_decl.model.plan import Plan, PlannedLaunch
from sgpu_decl.model.step_progress import Progress, Quiet
from sgpu_decl.planner.jobs.launched_run import launches_of
from sgpu_decl.planning.environment_facts import FromLock, Recipe
from sgpu_decl.planning.project import Project
from sgpu_decl.planning.project_text import ProjectText


def pin_code(
    project: Project,
    plan: Plan,
    snapshots: Mapping[str, Snapshot],
    progress: Progress | None = None,
) -> None:
    """Put the code of every launch into the store.

    What is neither there nor among `snapshots` is built again from the tree: the plan says which
    files counted, so no YAML, variable or override is needed.

    Raises:
        StalePlan: the tree has other bytes now.
    """
    for digest, launch in launched_code(plan).items():
        if project.store.touch(digest, progress):
            continue
        code = snapshots.get(digest) or _rebuild(project.root, launch, plan.values_left_out)
        if code is None or code.digest != digest:
            raise StalePlan(
                "the code here is not the code that was planned",
                hint="check out the planned commit, or plan again",
                code="code_differs",
            )
        project.store.put(code, progress)


def pin_environments(
    project: Project,
    plan: Plan,
    recipes: Mapping[str, Recipe],
    owner: Path,
    progress: Progress | None = None,
) -> None:
    """Store the environments of a saved plan that only this machine has. One of a lock can be built
    again. `owner` is the file of the plan."""
    launched = launched_environments(plan)
    for digest in launched:
        recipe = recipes.get(digest)
        if recipe is not None and not isinstance(recipe, FromLock):
            project.environments.put(recipe, progress or Quiet())
    if launched:
        project.environments.refer(Owner(path=os.fspath(owner)), launched)


def launched_environments(plan: Plan) -> set[str]:
    """The digests of what runs are launched in."""
    return {
        inputs.environment_digest
        for change in plan.changes
        if change.stages
        for inputs in launches_of(change)
        if inputs.environment_digest
    }


def launched_code(plan: Plan) -> dict[str, PlannedLaunch]:
    """One launch of each code digest that the plan launches."""
    return {
        inputs.code_digest: replace(change.launch, inputs=inputs)
        for change in plan.changes
        if change.launch and change.stages
        for inputs in launches_of(change)
        if inputs.code_digest
    }


def _rebuild(root: Path, launch: PlannedLaunch, values: Sequence[str]) -> Snapshot | None:
    spec = launch.inputs.spec.fields
    code = Code.model_validate(spec.get("code", {}))
    owner = root / launch.owner
    cache = HashCache.open()
    code_tree, _ = snapshot(
        (owner.parent / (code.root or ".")).resolve(),
        include=tuple(code.include),
        exclude=tuple(code.exclude),
        link=tuple(code.link),
        owners=(*ProjectText(owner).files(), *(root / file for file in values)),
        outputs=own_outputs(),
        cache=cache,
    )
    cache.save()
    return code_tree
