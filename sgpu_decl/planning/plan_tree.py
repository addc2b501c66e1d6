"""A saved plan belongs to the files that it was made from: the tree of the project's folder."""

from pathlib import Path

from sgpu_decl.code.repository import git_text
from sgpu_decl.errors import StalePlan
from sgpu_decl.model.plan import Plan
from sgpu_decl.planning.checkout import Checkout

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
            "the plan was made from other files than those of the commit here, and git does not "
            f"have them to compare: tree {planned.tree[:12]}, here {head.tree[:12]}",
            hint=f"`git fetch` and check out commit {commit}, or plan again",
            code="other_tree",
        )
    raise StalePlan(
        "the plan was made from other files than those of the commit here, which differ in "
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
