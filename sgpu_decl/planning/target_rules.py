"""Whether a target lets this checkout, this login and this apply change it. The rules prevent
mistakes: who edits the file can change them, and rights in the workspace and the state cannot be
edited so."""

import os
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from sgpu_decl.errors import SgpuError, StalePlan
from sgpu_decl.model.backend_kinds import is_remote
from sgpu_decl.planning.checkout import Checkout
from sgpu_decl.planning.location import ROOT_FILE
from sgpu_decl.planning.project import Project
from sgpu_decl.planning.project_text import ProjectText
from sgpu_decl.storing.state_store import user_name

if TYPE_CHECKING:
    from sgpu_decl.config.target_rules import TargetRules
    from sgpu_decl.diagnostics.place import Place

_CI = (
    # https://docs.github.com/en/actions/reference/workflows-and-actions/variables
    ("GITHUB_SHA", ("GITHUB_HEAD_REF", "GITHUB_REF_NAME"), ("GITHUB_REF_TYPE", "branch")),
    # https://docs.gitlab.com/ci/variables/predefined_variables/
    ("CI_COMMIT_SHA", ("CI_MERGE_REQUEST_SOURCE_BRANCH_NAME", "CI_COMMIT_BRANCH"), None),
)
"""Of each CI: the variable of the commit, those of its branch (the first that is set counts; the
first of all is set for pull requests alone), and what another one must be."""
_DETACHED = "HEAD"


def refuse_by_rules(project: Project, *, reviewed: bool) -> None:
    """Check the rules of the target: `branch`, `requires: reviewed` and `user`.

    Args:
        reviewed: whether the apply carries out only what proposals show.

    Raises:
        SgpuError: the checkout has another branch, or another user is logged in.
        StalePlan: the apply needs a review.
    """
    rules = _rules_of(project)
    if rules is None:
        return
    target = f"the target `{project.target}`"
    if rules.branch is not None:
        _refuse_branch(Checkout(project.root), target, *rules.branch)
    if rules.user is not None:
        _refuse_user(project, target, *rules.user)
    if rules.reviewed is not None and not reviewed:
        raise StalePlan(
            f"{target} requires a review (`{rules.reviewed}`)",
            hint="propose the changes with `sgpu plan --propose`; after the review, apply with "
            "`sgpu apply --reviewed`",
            code="review_required",
        )


def _rules_of(project: Project) -> "TargetRules | None":
    """Those of the root file, without its runs: a function that is called has the file of its
    project."""
    file = project.file
    if file is None or file.suffix in (".py", ".ipynb"):
        file = project.root / ROOT_FILE
    if project.target is None or not file.is_file():
        return None
    files, _ = ProjectText(file).parsed
    if files is None or files.kind != "project":
        return None  # whoever reads the file says what is wrong with it
    from sgpu_decl.config.target_rules import target_rules

    return target_rules(files.root, project.target)


def _refuse_branch(checkout: Checkout, target: str, branch: str, place: "Place") -> None:
    head = checkout.head
    here = None if head is None else head.branch
    if here == _DETACHED and head is not None:
        here = ci_branch(head.commit, os.environ)
    if here == branch:
        return
    if head is None:
        found, hint = "this is no git checkout", f"apply from a checkout of `{branch}`"
    elif here is None:
        found = "this checkout is on no branch (detached HEAD)"
        hint = (
            f"`git switch {branch}`; in CI, sgpu takes the branch from the variables of GitHub and "
            "GitLab, if the checkout has the commit that they name"
        )
    else:
        found = f"this is `{here}`"
        hint = f"merge it, and apply from `{branch}`; to try it, use a target without `branch`"
    raise SgpuError(
        f"{target} is applied from the branch `{branch}` only (`{place}`), and {found}",
        hint=hint,
        code="other_branch",
    )


def ci_branch(commit: str | None, environ: Mapping[str, str]) -> str | None:
    """The branch that a CI names for the commit that is checked out; `None` if it names none, or
    another commit."""
    for sha, names, condition in _CI:
        if commit is None or environ.get(sha) != commit:
            continue
        of_request, of_branch = (environ.get(name) or None for name in names)
        if of_request is not None:
            return of_request
        if condition is None or environ.get(condition[0]) == condition[1]:
            return of_branch
    return None


def _refuse_user(project: Project, target: str, user: str, place: "Place") -> None:
    for here, where in _logins(project):
        if here != user:
            raise SgpuError(
                f"{target} is applied by `{user}` only (`{place}`), and {where} is `{here}`"
                if here is not None
                else f"{target} is applied by `{user}` only (`{place}`), and {where} is not known",
                hint="log in as that user or service principal, or let CI apply: a plan needs "
                "neither",
                code="other_user",
            )


def _logins(project: Project) -> "Iterator[tuple[str | None, str]]":
    """Who would apply, on each platform that knows users; without one, the user of this machine."""
    from sgpu_decl.config.run import RunConfig
    from sgpu_decl.planning.job_facts import DeclaredJobs

    loaded = project.read().loaded
    jobs = DeclaredJobs.of(loaded, "")
    blocks = [run.config.backend for run in loaded.runs] + list(map(jobs.backend_of, loaded.jobs))
    logins: dict[str, str | None] = {}
    for block in dict.fromkeys(blocks):
        field: dict[str, Any] = {"backend": block}  # an account depends on that alone
        config = RunConfig.model_construct(**field)
        survey = project.survey(str(block.kind)) if is_remote(block.kind) else None
        account = survey.account(config) if survey is not None else None
        if account is not None and account.user is not None:
            logins[account.host] = account.user
        elif survey is not None and account is None:
            logins[f"`{block.kind}`"] = None
    if not logins:
        yield user_name(), "the user of this machine"
    for host, user in logins.items():
        yield user, f"the login at {host}"
