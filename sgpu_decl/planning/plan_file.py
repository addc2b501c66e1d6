"""Saved plans: files that someone can look at, mail, and apply later. A saved plan belongs to the
files that it was made from: the tree of the project's folder."""

import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from sgpu_decl.atomic_files import write_atomic
from sgpu_decl.code.repository import git_text
from sgpu_decl.diagnostics.place import Place
from sgpu_decl.errors import InvalidInput, SgpuError, StalePlan
from sgpu_decl.model.owner import Owner
from sgpu_decl.model.plan import Plan
from sgpu_decl.planner.plan_json import saved_from_json, saved_text
from sgpu_decl.planning.checkout import Checkout, project_identity
from sgpu_decl.planning.location import project_above
from sgpu_decl.planning.pinned_content import launched_code, pin_code, pin_environments
from sgpu_decl.planning.prepared import Prepared
from sgpu_decl.planning.project_text import holds_plan
from sgpu_decl.regular_files import read_regular
from sgpu_decl.system_errors import error_text

if TYPE_CHECKING:
    from sgpu_decl.model.step_progress import Progress
    from sgpu_decl.planning.project import Project


def save_plan(
    project: "Project", prepared: "Prepared", path: Path, progress: "Progress | None"
) -> None:
    """Write a plan and pin the code and the environments behind it in the local stores.

    Raises:
        SgpuError: the file cannot be written, or is there and is no saved plan.
    """
    refuse_taken(path)
    plan = replace(prepared.with_commit().plan, identity=project.identity)
    pin_environments(project, plan, prepared.environments, path.resolve(), progress)
    pin_code(project, plan, prepared.code, progress)
    try:
        write_atomic(path, saved_text(plan).encode())
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
        InvalidInput: truncated, changed, of another format, or no plan at all.
        SgpuError: there is no such file, or it cannot be read.
    """
    file = os.fspath(path)
    try:
        content = read_regular(path)
    except OSError as error:
        raise SgpuError(
            f"`{file}` cannot be read: {error_text(error)}",
            hint="name a file that `sgpu plan --out` wrote",
            code="unreadable",
        ) from error
    plan, findings = saved_from_json(content.decode("utf-8", "replace"), file)
    if plan is None:
        start = Place(file, 1, 1)
        raise InvalidInput(
            f"`{path}` is not a plan that can be applied",
            hint=findings[0].hint,
            diagnostics=tuple(replace(one, place=one.place or start) for one in findings),
        )
    return Prepared(plan=plan, checkout=Checkout(Path(plan.project)))


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
    the plan was made, its repository and the folder in it on any. Where git cannot tell, the files
    of what is launched have to be here; and only what the user `named` may be a copy of what lies
    on this machine too."""
    planned = Path(plan.project).resolve()
    if planned == root:
        return True
    here = project_identity(root)
    if plan.identity is not None and here is not None:
        same = plan.identity.is_same(here)
        if same is not None:
            return same
    if not planned.is_dir():
        return all(
            (root / change.launch.owner).is_file()
            for change in plan.changes
            if change.launch and change.launches
        )
    return named and not (planned.is_relative_to(root) or root.is_relative_to(planned))


def _other_project(planned: Path, root: Path) -> StalePlan:
    return StalePlan(
        f"this plan was made for the project `{planned}`, not for `{root}`",
        hint=f"apply it there, or name its folder on this machine: `--project {planned}`",
        code="other_project",
    )


_SHOWN = 5  # of the files that differ


def check_tree(plan: Plan, root: Path) -> None:
    """Check that the commit that is checked out in `root` has the files of the plan.

    The trees are compared and not the commits: a merge, a squash or a rebase makes another commit
    of the same tree. A plan of files that no commit held has no tree; nor has one from outside of
    git. Their digests of code and environment still count.

    Raises:
        StalePlan: the commit has other files.
    """
    planned = plan.git
    if planned is None or planned.tree is None or planned.dirty:
        return
    head = Checkout(root).head
    if head is None or head.tree is None or head.tree == planned.tree:
        return
    files = _differing(root, planned.tree, head.tree)
    commit = (planned.commit or "of the plan")[:12]
    if files is None:
        raise StalePlan(
            "the plan was made from other files than the commit here has, and git does not "
            f"have them to compare: tree {planned.tree[:12]}, here {head.tree[:12]}",
            hint=f"`git fetch` and check out commit {commit}, or plan again",
            code="other_tree",
        )
    raise StalePlan(
        "the plan was made from other files than the commit here has; they differ in "
        + _listing(files),
        hint=f"check out commit {commit}, or plan again",
        code="other_tree",
    )


def _differing(root: Path, one: str, other: str) -> list[str] | None:
    """The files that differ between two trees; None if git has not both."""
    words = ("diff-tree", "-r", "-z", "--name-only", "--no-renames", "--no-ext-diff")
    names = git_text(root, *words, one, other, "--")
    return None if names is None else [name for name in names.split("\0") if name]


def _listing(files: list[str]) -> str:
    shown = ", ".join(f"`{name}`" for name in files[:_SHOWN])
    return shown if len(files) <= _SHOWN else f"{shown} and {len(files) - _SHOWN} more"
