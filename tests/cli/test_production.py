"""What a target for production refuses."""

import os
import subprocess

import pytest

from tests.cli.conftest import Shell

PROJECT = """\
project: {name: demo}
runs:
  train: {gpus: 1, type: CPU, entrypoint: 'train.py:main', code: {root: src}}
defaults: {run: {mlflow: {enabled: false}}}
targets: {prod: {mode: production}, dev: {mode: development}, plain: {}}
"""


def git(shell: Shell, *words: str) -> None:
    names = ("-c", "user.name=a", "-c", "user.email=a@b.c", "-c", "commit.gpgsign=false")
    subprocess.run(["git", *names, *words], cwd=shell.folder, check=True, capture_output=True)


@pytest.fixture
def project(sgpu: Shell) -> Shell:
    sgpu.write("sgpu.yml", PROJECT)
    sgpu.write("src/train.py", "def main(): ...\n")
    git(sgpu, "init", "-q")
    git(sgpu, "add", ".")
    git(sgpu, "commit", "-q", "-m", "one")
    return sgpu


def refusals(shell: Shell, *words: str) -> dict[str, str]:
    data = shell.data("plan", *words)
    errors = {one["id"]: one["summary"] for one in data["checks"] if one["severity"] == "error"}
    assert data["applyable"] is not bool(errors)
    return errors


def test_a_clean_checkout_is_planned_and_others_are_refused_by_name(project: Shell) -> None:
    assert refusals(project, "-t", "prod") == {}
    project.write("src/train.py", "def main(): return 1\n")
    project.write("new.py", "")
    summary = refusals(project, "-t", "prod")["uncommitted_changes"]
    assert summary.endswith("its commit: `new.py`, `src/train.py`")
    assert "`src/train.py`" in project.exits(1, "apply", "-t", "prod", "-y").err
    for target in ("dev", "plain", "default"):
        assert refusals(project, "-t", target) == {}


def test_files_that_git_ignores_and_the_state_are_no_changes(project: Shell) -> None:
    project.write(".git/info/exclude", "*.log\n")
    project.write("x.log", "")
    project.done("apply", "-t", "dev", "-y", "--detach")
    assert refusals(project, "-t", "prod") == {}


def test_a_file_that_is_gone_is_a_change(project: Shell) -> None:
    project.write("more.txt", "")
    git(project, "add", ".")
    git(project, "commit", "-q", "-m", "two")
    os.unlink(project.folder / "more.txt")
    assert "`more.txt`" in refusals(project, "-t", "prod")["uncommitted_changes"]


def test_an_option_that_no_file_holds_is_refused(project: Shell) -> None:
    found = refusals(project, "-t", "prod", "--set", "runs.train.gpus=2")
    assert list(found) == ["set_in_production"]
    assert "`--set runs.train.gpus`" in found["set_in_production"]
    assert refusals(project, "-t", "plain", "--set", "runs.train.gpus=2") == {}


def test_without_git_nothing_is_said_about_files(sgpu: Shell) -> None:
    sgpu.write("sgpu.yml", PROJECT)
    sgpu.write("src/train.py", "def main(): ...\n")
    assert refusals(sgpu, "-t", "prod") == {}
