"""Which commit a launch was made from: noted with the attempt, as it was planned."""

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.cli.test_git_references import git

RUN = "name: a\ngpus: 1\ntype: CPU\ncommand: ['true']\nmlflow: {enabled: false}\ngrace: 500ms\n"


@pytest.fixture
def checkout(sgpu: Any) -> Any:
    sgpu.write("run.yaml", RUN)
    sgpu.write("a.txt", "a\n")
    sgpu.write(".gitignore", ".sgpu\n*.plan\n")
    git(sgpu.folder, "init", "-q", "-b", "work")
    git(sgpu.folder, "remote", "add", "origin", "https://me:hunter2@example.org/x.git")
    git(sgpu.folder, "add", ".")
    git(sgpu.folder, "commit", "-q", "-m", "first")
    return sgpu


def noted(checkout: Any, attempt: int) -> Any:
    """What the attempt knows of git."""
    text = (checkout.folder / f".sgpu/default/runs/a/{attempt}/spec.json").read_text()
    assert "hunter2" not in text
    return json.loads(text)["git"]


def test_an_attempt_knows_the_commit_the_branch_and_whether_files_differed(checkout: Any) -> None:
    commit = git(checkout.folder, "rev-parse", "HEAD")
    assert checkout.here("apply", "-y").code == 0
    assert noted(checkout, 1) == {"commit": commit, "branch": "work", "dirty": "false"}
    checkout.write("a.txt", "changed\n")
    assert checkout.here("apply", "-y").code == 0
    assert noted(checkout, 2) == {"commit": commit, "branch": "work", "dirty": "true"}


def test_a_saved_plan_keeps_the_commit_that_it_was_made_from(checkout: Any) -> None:
    commit = git(checkout.folder, "rev-parse", "HEAD")
    assert checkout.here("plan", "--out", "a.plan").code == 0
    assert json.loads((checkout.folder / "a.plan").read_text())["git"]["commit"] == commit
    git(checkout.folder, "commit", "-q", "--allow-empty", "-m", "second")
    assert checkout.here("apply", "-y", "a.plan").code == 0
    assert noted(checkout, 1)["commit"] == commit


def test_git_is_asked_for_launches_alone(
    checkout: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, programs = tmp_path / "asked", tmp_path / "programs"
    programs.mkdir()
    program = programs / "git"
    program.write_text(f'#!/bin/sh\necho "$@" >> {asked}\nexec {shutil.which("git")} "$@"\n')
    program.chmod(0o755)
    path = f"{programs}{os.pathsep}{os.environ['PATH']}"
    monkeypatch.setitem(checkout.environ, "PATH", path)
    assert checkout.here("plan").code == 0
    assert not asked.exists()
    assert checkout.here("apply", "-y").code == 0
    assert len(asked.read_text().splitlines()) == 3
    asked.unlink()
    assert checkout.here("apply", "-y").code == 0
    assert not asked.exists(), "nothing is launched"
