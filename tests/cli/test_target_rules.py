"""What a target with `branch`, `requires: reviewed` or `user` refuses."""

from dataclasses import replace

import pytest

from sgpu_decl.planning.target_rules import ci_branch
from sgpu_decl.storing.state_store import user_name
from tests.cli.conftest import Shell
from tests.cli.test_production import git

PROJECT = """\
project: {{name: demo}}
defaults: {{run: {{mlflow: {{enabled: false}}}}}}
runs: {{a: {{gpus: 1, type: CPU, command: 'true'}}}}
targets: {{prod: {{{rules}}}}}
"""
PROD = ("apply", "-t", "prod", "-y")


def project(shell: Shell, rules: str) -> Shell:
    shell.write("sgpu.yml", PROJECT.format(rules=rules))
    git(shell, "init", "-q", "-b", "fix")
    git(shell, "add", ".")
    git(shell, "commit", "-q", "-m", "one")
    return shell


def test_another_branch_is_refused_and_planned(sgpu: Shell) -> None:
    project(sgpu, "branch: main")
    sgpu.done("plan", "-t", "prod", "--out", "run.plan")
    for words in (PROD, ("apply", "run.plan"), ("destroy", "-t", "prod", "-y")):
        err = sgpu.exits(1, *words).err
        assert "error[other_branch]" in err
        assert "from the branch `main` only (`" in err
        assert "sgpu.yml:4:26`), and this is `fix`" in err
    sgpu.done("apply", "-t", "default", "-y")
    git(sgpu, "switch", "-q", "-c", "main")
    sgpu.done(*PROD)


def test_a_plan_says_that_apply_would_be_refused(sgpu: Shell) -> None:
    project(sgpu, f"branch: main, requires: reviewed, user: {user_name()}")
    shown = sgpu.done("plan", "-t", "prod", "--strict", "--out", "run.plan").out
    assert (
        "warning[other_branch]: `sgpu apply` would be refused here: the target `prod` is applied "
        "from the branch `main` only, and this is `fix`" in shown
    )
    assert "hint: merge it, and apply from `main`; to try it, use a target without" in shown
    assert "info[review_required]: the target `prod` requires a review" in shown
    assert "other_user" not in shown
    checks = sgpu.data("plan", "-t", "prod")["checks"]
    assert [(one["id"], one["severity"], one["place"]["line"]) for one in checks] == [
        ("other_branch", "warning", 4),
        ("review_required", "info", 4),
    ]
    assert "would be refused here" in sgpu.done("plan", "-t", "prod", "-o", "markdown").out
    # A plan for a review is applied by others.
    compared = sgpu.data("plan", "-t", "prod", "--base", "HEAD")["checks"]
    assert {one["severity"] for one in compared} == {"info"}

    git(sgpu, "switch", "-q", "-c", "main")
    assert "other_branch" not in sgpu.done("plan", "-t", "prod", "--propose").out
    applied = sgpu.done("apply", "run.plan", "--reviewed")
    assert "refused here" not in applied.out + applied.err
    assert sgpu.data("plan", "-t", "prod")["checks"] == []  # nothing is left to be applied


def test_a_detached_head_has_the_branch_that_a_ci_names_for_its_commit(sgpu: Shell) -> None:
    project(sgpu, "branch: main")
    git(sgpu, "switch", "-q", "--detach")
    assert "on no branch (detached HEAD)" in sgpu.exits(1, *PROD).err
    commit = (sgpu.folder / ".git/HEAD").read_text().strip()
    ci = {"GITHUB_SHA": commit, "GITHUB_REF_NAME": "main", "GITHUB_REF_TYPE": "branch"}
    other = replace(sgpu, environ={**sgpu.environ, **ci, "GITHUB_SHA": "0" * 40})
    assert "error[other_branch]" in other.exits(1, *PROD).err
    replace(sgpu, environ={**sgpu.environ, **ci}).done(*PROD)


@pytest.mark.parametrize(
    ("environ", "branch"),
    [
        ({}, None),
        ({"GITHUB_SHA": "c", "GITHUB_REF_NAME": "v1", "GITHUB_REF_TYPE": "tag"}, None),
        ({"GITHUB_SHA": "c", "GITHUB_REF_NAME": "main", "GITHUB_REF_TYPE": "branch"}, "main"),
        ({"GITHUB_SHA": "d", "GITHUB_REF_NAME": "main", "GITHUB_REF_TYPE": "branch"}, None),
        (
            {"GITHUB_SHA": "c", "GITHUB_HEAD_REF": "fix", "GITHUB_REF_NAME": "5/merge",
             "GITHUB_REF_TYPE": "branch"},
            "fix",
        ),
        ({"CI_COMMIT_SHA": "c", "CI_COMMIT_BRANCH": "main"}, "main"),
        ({"CI_COMMIT_SHA": "c", "CI_MERGE_REQUEST_SOURCE_BRANCH_NAME": "fix"}, "fix"),
        ({"CI_COMMIT_SHA": "c", "CI_COMMIT_TAG": "v1"}, None),
    ],
)  # fmt: skip
def test_a_ci_names_a_branch(environ: dict[str, str], branch: str | None) -> None:
    assert ci_branch("c", environ) == branch
    assert ci_branch(None, environ) is None


def test_without_git_there_is_no_branch(sgpu: Shell) -> None:
    sgpu.write("sgpu.yml", PROJECT.format(rules="branch: main"))
    assert "this is no git checkout" in sgpu.exits(1, *PROD).err


def test_a_review_is_a_proposal(sgpu: Shell) -> None:
    project(sgpu, "requires: reviewed")
    sgpu.done("plan", "-t", "prod", "--out", "run.plan")
    for words in (PROD, ("apply", "run.plan")):
        err = sgpu.exits(3, *words).err
        assert "error[review_required]" in err
        assert "sgpu plan --propose" in err
    assert "error[not_reviewed]" in sgpu.exits(3, "apply", "-t", "prod", "--reviewed").err
    sgpu.done("plan", "-t", "prod", "--propose")
    sgpu.done("apply", "-t", "prod", "--reviewed")


def test_another_login_is_refused(sgpu: Shell) -> None:
    project(sgpu, "user: 1f3e-ci")
    assert "warning[other_user]" in sgpu.done("plan", "-t", "prod").out
    err = sgpu.exits(1, *PROD).err
    assert "applied by `1f3e-ci` only" in err
    assert f"the user of this machine is `{user_name()}`" in err
    sgpu.write("sgpu.yml", PROJECT.format(rules=f"user: {user_name()}"))
    sgpu.done(*PROD)
