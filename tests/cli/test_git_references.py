"""`${git.…}`: what it says, and that git executes nothing of the checkout for it."""

import os
import subprocess
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
    (change,) = checkout.here("plan", "-o", "json").json["data"]["changes"]
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
