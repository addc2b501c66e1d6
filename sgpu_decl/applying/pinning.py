"""The code behind a plan: in the local store, or built again from the tree that it names."""

from collections.abc import Mapping
from pathlib import Path

from sgpu_decl.applying.site import Site
from sgpu_decl.config.code import Code
from sgpu_decl.errors import StalePlan
from sgpu_decl.model.plan import Launch, Plan
from sgpu_decl.planning.differing import parse
from sgpu_decl.planning.jobs.running import run_in, staged_by_jobs
from sgpu_decl.staging.hashing import HashCache
from sgpu_decl.staging.snapshot import Snapshot, own_outputs, snapshot

__all__ = ["launched_code", "pin", "refer"]


def pin(site: Site, plan: Plan, snapshots: Mapping[str, Snapshot]) -> None:
    """Put the code of every launch into the store.

    What is neither there nor among `snapshots` is built again from the tree: the plan says which
    files counted, so no YAML, variable or override is needed.

    Raises:
        StalePlan: the tree has other bytes now.
    """
    for digest, launch in launched_code(plan).items():
        if site.store.touch(digest):
            continue
        taken = snapshots.get(digest) or _again(site.root, launch)
        if taken is None or taken.digest != digest:
            raise StalePlan(
                "the code here is not the code that was planned",
                hint="check out the planned commit, or plan again",
                code="code_differs",
            )
        site.store.put(taken)


def refer(site: Site) -> None:
    """Tell the shared store which code this state needs, so that no other project's gc takes it."""
    state = site.state()
    used = {it.last.code_digest for it in state.resources.values() if it.last}
    used |= {attempt.code_digest for attempt in state.active}
    used |= staged_by_jobs(state.resources.values(), "code")
    site.store.refer(site.state_dir / "state.db", {it for it in used if it})


def launched_code(plan: Plan) -> dict[str, Launch]:
    """One launch of each code digest that the plan launches."""
    return {
        change.launch.code_digest: change.launch
        for change in plan.changes
        if change.launch and change.stages and change.launch.code_digest
    }


def _again(root: Path, launch: Launch) -> Snapshot | None:
    spec = parse(run_in(launch.spec) or launch.spec)
    code = Code.model_validate(spec.get("code", {}))
    owner = root / launch.owner
    cache = HashCache.open()
    taken, _ = snapshot(
        (owner.parent / (code.root or ".")).resolve(),
        include=tuple(code.include),
        exclude=tuple(code.exclude),
        link=tuple(code.link),
        owners=(owner,),
        outputs=own_outputs(),
        cache=cache,
    )
    cache.save()
    return taken
