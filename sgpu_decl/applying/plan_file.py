"""Saved plans: files that someone can look at, mail, and apply later."""

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from sgpu_decl.agent.secret_environ import PLAN_KEY
from sgpu_decl.applying.environment_staging import keep_environments
from sgpu_decl.applying.pinned_code import launched_code, pin
from sgpu_decl.applying.prepared import Prepared
from sgpu_decl.atomic_files import write_atomic
from sgpu_decl.diagnostics.place import Place
from sgpu_decl.errors import InvalidInput, SgpuError, StalePlan
from sgpu_decl.facts.checkout import Checkout
from sgpu_decl.facts.file_kind import holds_plan
from sgpu_decl.facts.location import project_above
from sgpu_decl.facts.remotes import project_identity
from sgpu_decl.facts.sealed_target import is_sealed
from sgpu_decl.model.owner import Owner
from sgpu_decl.model.plan import Plan
from sgpu_decl.model.state import State
from sgpu_decl.planning.plan_json import saved_from_json, saved_text
from sgpu_decl.planning.plan_seal import has_good_seal
from sgpu_decl.planning.saved_plan_checks import contradictions, disagreements
from sgpu_decl.regular_files import read_regular
from sgpu_decl.system_errors import error_text

if TYPE_CHECKING:
    from sgpu_decl.facts.opened_project import OpenedProject
    from sgpu_decl.model.step_progress import Progress


def save_plan(
    project: "OpenedProject", prepared: "Prepared", path: Path, progress: "Progress | None"
) -> None:
    """Write a plan and pin the code and the environments behind it in the local stores.

    Raises:
        SgpuError: the file cannot be written, or is there and is no saved plan.
    """
    refuse_taken(path)
    plan = replace(prepared.with_commit().plan, identity=project.identity)
    keep_environments(project, plan, prepared.environments, path.resolve(), progress)
    pin(project, plan, prepared.code, progress)
    try:
        write_atomic(path, saved_text(plan, _key()).encode())
        project.store.refer(Owner(path=os.fspath(path.resolve())), set(launched_code(plan)))
    except OSError as error:
        raise SgpuError(
            f"the plan cannot be written to `{path}`: {error_text(error)}",
            hint="give `--out` the path of a file in a folder that you may write to",
            code="unwritable",
        ) from None


def refuse_taken(path: Path) -> None:
    """Return where a plan may be saved: where nothing is, an empty file, or an older plan.

    Raises:
        SgpuError: a file is there that somebody may need, the run file maybe.
    """
    if not os.path.exists(path) or _replaceable(path):
        return
    raise SgpuError(
        f"`{path}` exists and is no saved plan: it is not overwritten",
        hint="give `--out` another name, such as `run.plan`; or move that file away",
        code="exists",
    )


def _replaceable(path: Path) -> bool:
    return path.is_file() and (path.stat().st_size == 0 or holds_plan(path))


def load_plan(path: Path) -> "Prepared":
    """Read a saved plan.

    Raises:
        InvalidInput: truncated, of another format, no plan at all, or with a seal of another key.
    """
    file = os.fspath(path)
    text, key = read_regular(path).decode("utf-8", "replace"), _key()
    plan, findings = saved_from_json(text, file, key)
    if plan is None:
        start = Place(file, 1, 1)
        raise InvalidInput(
            f"`{path}` is not a plan that can be applied",
            hint=findings[0].hint,
            diagnostics=tuple(replace(one, place=one.place or start) for one in findings),
        )
    if (what := next(contradictions(plan), None)) is not None:
        raise edited_plan(f"`{path}`", what)
    sealed = bool(key) and has_good_seal(json.loads(text), key)
    return Prepared(plan=plan, checkout=Checkout(Path(plan.project)), sealed=sealed)


def _key() -> str:
    return os.environ.get(PLAN_KEY, "")


def check_seal(project: "OpenedProject", prepared: "Prepared") -> None:
    """Refuse a saved plan without a good seal where the target takes sealed ones alone.

    Raises:
        InvalidInput: it has none, or this machine has no key to check it with.
    """
    if prepared.sealed or not is_sealed(project.opened):
        return
    where = f"the target `{prepared.plan.target}`" if prepared.plan.target else "this project"
    if not _key():
        raise InvalidInput(
            f"{where} takes sealed plans alone (`sealed: true`), and `{PLAN_KEY}` is not set here",
            hint=f"set `{PLAN_KEY}` to the key that the plan was sealed with",
            code="unsealed_plan",
        )
    raise InvalidInput(
        f"{where} takes sealed plans alone (`sealed: true`), and this plan has no seal",
        hint=f"make it again with `sgpu plan --out run.plan` where `{PLAN_KEY}` is set",
        code="unsealed_plan",
    )


def opened_root(plan: Plan, path: Path, named: Path | None, here: Path) -> Path:
    """The folder that an apply of a saved plan opens: the one of `--project`, else the project
    around the current folder, else the one around the plan's file. What a plan says of its project
    has to agree, and decides nothing, since anybody may have written it. Only where nothing else
    names a project is it that of the plan.

    Args:
        path: the file of the plan.
        named: the folder of `--project`.
        here: the current folder.

    Raises:
        StalePlan: the plan was made for another project.
    """
    planned = Path(plan.project)
    if named is not None and not named.is_dir():
        return named  # whoever opens it says that it is not there
    opened = named or project_above(here) or project_above(path.resolve().parent)
    if opened is None and planned.is_dir():
        around = project_above(planned.resolve())
        if around is None or around == planned.resolve():
            return planned.resolve()
        raise _other_project(planned, around)
    root = (opened or here).resolve()
    if not _is_planned(plan, root, named=named is not None):
        raise _other_project(planned, root)
    return root


def _is_planned(plan: Plan, root: Path, *, named: bool) -> bool:
    """Whether a plan is for the project in a folder. Its path means something on the machine where
    the plan was made, its repository and the folder in it on any. Where git cannot tell, only what
    the user `named` may be a copy of what lies on this machine too."""
    planned = Path(plan.project).resolve()
    if planned == root:
        return True
    here = project_identity(root)
    if plan.identity is not None and here is not None:
        same = plan.identity.is_same(here)
        if same is not None:
            return same
    if not planned.is_dir():
        return True
    return named and not (planned.is_relative_to(root) or root.is_relative_to(planned))


def _other_project(planned: Path, root: Path) -> StalePlan:
    return StalePlan(
        f"this plan was made for the project `{planned}`, not for `{root}`",
        hint=f"apply it there, or name its folder on this machine: `--project {planned}`",
        code="other_project",
    )


def check_state(project: "OpenedProject", plan: Plan) -> None:
    """Refuse a saved plan that does not fit the state. If the state has changed since the plan,
    apply refuses the plan as stale.

    Raises:
        InvalidInput: it launches, stops or shows something else than planning would.
    """
    state = project.states.read()
    if plan.serial == 0 and state is None:
        state = State(lineage=plan.lineage, serial=0, resources={})
    for change in plan.changes:
        owner = change.launch.owner if change.launch else None
        recorded = state.resources.get(change.address) if state else None
        if owner is None or (recorded is not None and recorded.owner == owner):
            continue
        if not (project.root / owner).is_file():
            raise edited_plan(
                "the saved plan", f"names no file that is here for `{change.address}`"
            )
    if state is None or (state.lineage, state.serial) != (plan.lineage, plan.serial):
        return
    if (what := next(disagreements(plan, project.believed(state)), None)) is not None:
        raise edited_plan("the saved plan", what)


def edited_plan(name: str, what: str) -> InvalidInput:
    """The error for a saved plan that somebody changed."""
    return InvalidInput(
        f"{name} is not what `sgpu plan` made: it {what}",
        hint="make it again with `sgpu plan --out run.plan`",
    )
