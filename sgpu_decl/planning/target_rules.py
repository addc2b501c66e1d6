"""Whether a target lets this checkout, this login and this apply change it. The rules prevent
mistakes: who edits the file can change them, and rights in the workspace and the state cannot be
edited so."""

import os
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from sgpu_decl.diagnostics.diagnostic import Diagnostic, Severity
from sgpu_decl.errors import SgpuError, StalePlan
from sgpu_decl.frozen_dataclass import dataclass
from sgpu_decl.model.backend_kinds import is_remote
from sgpu_decl.model.plan import Plan
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
_CODES = ("other_branch", "other_user", "review_required")


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
    if (refused := _other_branch(project, Checkout(project.root), rules)) is not None:
        raise refused.error(code="other_branch")
    if (refused := _other_user(project, rules, unknown=True)) is not None:
        raise refused.error(code="other_user")
    if rules.reviewed is not None and not reviewed:
        raise StalePlan(
            f"the target `{project.target}` requires a review (`{rules.reviewed}`)",
            hint="propose the changes with `sgpu plan --propose`; after the review, apply with "
            "`sgpu apply --reviewed`",
            code="review_required",
        )


def rule_checks(project: Project, checkout: Checkout, *, compared: bool) -> Iterator[Diagnostic]:
    """Find why an apply of what is planned here would be refused, as far as that is known: nothing
    is found of a login that is not. A review is a note, because proposals come after a plan.

    Args:
        compared: whether the plan shows what a branch changes, so that others apply it later.
    """
    rules = _rules_of(project)
    if rules is None:
        return
    if (refused := _other_branch(project, checkout, rules)) is not None:
        yield refused.finding(code="other_branch", compared=compared)
    if (refused := _other_user(project, rules, unknown=False)) is not None:
        yield refused.finding(code="other_user", compared=compared)
    if rules.reviewed is not None:
        yield Diagnostic(
            code="review_required",
            severity=Severity.INFO,
            summary=f"the target `{project.target}` requires a review: an apply carries out only "
            "what proposals show",
            place=rules.reviewed,
            hint="propose the changes with `sgpu plan --propose`; after the review, apply with "
            "`sgpu apply --reviewed`",
        )


def without_rule_checks(plan: Plan) -> Plan:
    """A saved plan where it is applied: what its rules say is known there."""
    return replace(plan, checks=tuple(one for one in plan.checks if one.code not in _CODES))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Refusal:
    """`rule` is what the target says, `found` what is not so."""

    rule: str
    place: "Place"
    found: str
    hint: str

    def error(self, *, code: str) -> SgpuError:
        message = f"{self.rule} (`{self.place}`), and {self.found}"
        return SgpuError(message, hint=self.hint, code=code)

    def finding(self, *, code: str, compared: bool) -> Diagnostic:
        return Diagnostic(
            code=code,
            severity=Severity.INFO if compared else Severity.WARNING,
            summary=f"`sgpu apply` would be refused here: {self.rule}, and {self.found}",
            place=self.place,
            hint=self.hint,
        )


def _other_branch(project: Project, checkout: Checkout, rules: "TargetRules") -> _Refusal | None:
    if rules.branch is None:
        return None
    branch, place = rules.branch
    head = checkout.head
    here = None if head is None else head.branch
    if here == _DETACHED and head is not None:
        here = ci_branch(head.commit, os.environ)
    if here == branch:
        return None
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
    rule = f"the target `{project.target}` is applied from the branch `{branch}` only"
    return _Refusal(rule=rule, place=place, found=found, hint=hint)


def _rules_of(project: Project) -> "TargetRules | None":
    """Those of the root file, without its runs: a function that is called has the file of its
    project."""
    file, shown = project.file, project.shown
    if file is None or file.suffix in (".py", ".ipynb"):
        file, shown = project.root / ROOT_FILE, ROOT_FILE
    if project.target is None or not file.is_file():
        return None
    files, _ = ProjectText(file, shown).parsed
    if files is None or files.kind != "project":
        return None  # whoever reads the file says what is wrong with it
    from sgpu_decl.config.target_rules import target_rules

    return target_rules(files.root, project.target)


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


def _other_user(project: Project, rules: "TargetRules", *, unknown: bool) -> _Refusal | None:
    """The first login of another user; one that is not known counts if `unknown`."""
    if rules.user is None:
        return None
    user, place = rules.user
    for here, where in _logins(project):
        if here != user and (unknown or here is not None):
            return _Refusal(
                rule=f"the target `{project.target}` is applied by `{user}` only",
                place=place,
                found=f"{where} is not known" if here is None else f"{where} is `{here}`",
                hint="log in as that user or service principal, or let CI apply: a plan needs "
                "neither",
            )
    return None


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
