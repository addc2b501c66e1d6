"""`${git.…}`: what it says, and that git executes nothing of the checkout for it."""

import os
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from tests.cli.conftest import Shell

RUN = (
    "name: a\ngpus: 1\ntype: CPU\n"
    "command: ['echo', '${git.commit}', '${git.branch}', '${git.dirty}']\n"
)


def git(folder: Path, *words: str, stdin: str | None = None) -> str:
    identity = ["-c", "user.name=me", "-c", "user.email=me@localhost"]
    done = subprocess.run(
        ["git", "-C", str(folder), *identity, *words],
        input=stdin,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.strip()


@pytest.fixture
def checkout(sgpu: Shell) -> Shell:
    sgpu.write("run.yaml", RUN)
    sgpu.write("a.txt", "a\n")
    git(sgpu.folder, "init", "-q", "-b", "work")
    git(sgpu.folder, "add", ".")
    git(sgpu.folder, "commit", "-q", "-m", "first")
    return sgpu


def facts(checkout: Shell) -> list[str]:
    (change,) = checkout.data("plan")["changes"]
    return next(field["after"] for field in change["fields"] if field["path"] == "command")[1:]


def test_commit_branch_and_whether_tracked_files_changed(checkout: Shell) -> None:
    commit = git(checkout.folder, "rev-parse", "HEAD")
    assert facts(checkout) == [commit, "work", "false"]
    checkout.write("new.txt", "untracked")
    assert facts(checkout) == [commit, "work", "false"]
    checkout.write("a.txt", "other\n")
    assert facts(checkout) == [commit, "work", "true"]


def test_a_change_in_a_submodule_counts(checkout: Shell, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "b.txt").write_text("b\n")
    git(other, "init", "-q")
    git(other, "add", ".")
    git(other, "commit", "-q", "-m", "other")
    git(
        checkout.folder,
        "-c",
        "protocol.file.allow=always",
        "submodule",
        "add",
        "-q",
        str(other),
        "sub",
    )
    git(checkout.folder, "commit", "-q", "-m", "second")
    assert facts(checkout)[2] == "false"
    checkout.write("sub/b.txt", "changed\n")
    assert facts(checkout)[2] == "true"


@pytest.mark.parametrize("inside", [False, True])
def test_the_variables_of_a_hook_of_another_repository_lead_nowhere(
    checkout: Shell,
    tmp_path: Path,
    inside: bool,
) -> None:
    other = tmp_path / "other"
    other.mkdir()
    git(other, "init", "-q")
    git(other, "commit", "-q", "--allow-empty", "-m", "other")
    hook = {
        "GIT_DIR": str(other / ".git"),
        "GIT_WORK_TREE": str(other),
        "GIT_INDEX_FILE": str(other / ".git" / "index"),
        "GIT_PREFIX": "x/",
    }
    commit = git(checkout.folder, "rev-parse", "HEAD")
    if not inside:
        (checkout.folder / ".git").rename(tmp_path / "gone")
    shell = replace(checkout, environ={**checkout.environ, **hook})
    if inside:
        assert facts(shell) == [commit, "work", "false"]
    else:
        assert "is this a git checkout with a commit?" in shell.here("plan").err


def test_a_checkout_of_another_owner_is_refused_in_the_words_of_git(checkout: Shell) -> None:
    environ = {**checkout.environ, "GIT_TEST_ASSUME_DIFFERENT_OWNER": "1"}
    refused = replace(checkout, environ=environ).here("plan")
    assert "git says: detected dubious ownership in repository at" in refused.err
    assert "git config --global --add safe.directory" in refused.err


@pytest.mark.parametrize("name", ["lfs", "a.b", "x=y"])
def test_nothing_that_the_configuration_of_a_checkout_names_is_executed(
    checkout: Shell, tmp_path: Path, name: str
) -> None:
    ran = tmp_path / "ran"
    program = tmp_path / "program"
    program.write_text(f"#!/bin/sh\necho $0 $* >> {ran}\ncat\n")
    program.chmod(0o755)
    hooks = tmp_path / "hooks"
    hooks.mkdir()
    for hook in ("post-index-change", "fsmonitor-watchman"):
        (hooks / hook).symlink_to(program)
    checkout.write(".gitattributes", f"*.txt filter={name} diff=odd\n")
    with (checkout.folder / ".git/config").open("a") as config:
        config.write(
            f"[core]\n\tfsmonitor = {program}\n\thooksPath = {hooks}\n\tpager = {program}\n"
            f"\tsshCommand = {program}\n[pager]\n\tstatus = {program}\n"
            f'[diff]\n\texternal = {program}\n[diff "odd"]\n\ttextconv = {program}\n'
            f'[filter "{name}"]\n\tclean = {program}\n\tprocess = {program}\n\trequired = true\n'
            f'[filter "second"]\n\tclean = {program}\n'
        )
    os.utime(checkout.folder / "a.txt", (1, 1))  # git has to compare its content
    answer = checkout.here("validate", "-o", "json")
    assert not ran.exists(), ran.read_text()
    if "=" in name:  # no option of git's can switch it off
        assert "git has no dirty to tell here" in answer.out
    else:
        assert answer.code == 0
