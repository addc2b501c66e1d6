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
    checkout.done("apply", "-y")
    assert noted(checkout, 1) == {"commit": commit, "branch": "work", "dirty": "false"}
    checkout.write("a.txt", "changed\n")
    checkout.done("apply", "-y")
    assert noted(checkout, 2) == {"commit": commit, "branch": "work", "dirty": "true"}
    history = checkout.data("show", "a")["history"]
    assert [(item["reason"], item["commit"], item["dirty"]) for item in history] == [
        ("first_run", commit, False),
        ("code_changed", commit, True),
    ]
    last = f"; reason: the code changed; changed: code; commit: {commit[:12]} and local changes\n"
    assert checkout.here("show", "a").out.endswith(last)


def test_a_saved_plan_keeps_the_commit_that_it_was_made_from(checkout: Any) -> None:
    commit = git(checkout.folder, "rev-parse", "HEAD")
    checkout.done("plan", "--out", "a.plan")
    assert json.loads((checkout.folder / "a.plan").read_text())["git"]["commit"] == commit
    git(checkout.folder, "commit", "-q", "--allow-empty", "-m", "second")
    checkout.done("apply", "-y", "a.plan")
    assert noted(checkout, 1)["commit"] == commit


def planned(checkout: Any, *words: str, cwd: Path | None = None) -> Any:
    """What a plan says of git."""
    return checkout.data("plan", *words, cwd=cwd)["git"]


def test_every_plan_says_which_commit_its_files_are_from(checkout: Any) -> None:
    commit, tree = (git(checkout.folder, "rev-parse", name) for name in ("HEAD", "HEAD:"))
    facts = {"commit": commit, "branch": "work", "dirty": None, "base": None, "tree": tree}
    assert planned(checkout) == facts
    checkout.done("apply", "-y")
    assert planned(checkout) == facts
    git(checkout.folder, "checkout", "-q", "--detach")
    assert planned(checkout) == {**facts, "branch": "HEAD"}


def test_the_tree_is_that_of_the_projects_folder_and_outlives_a_squash(checkout: Any) -> None:
    checkout.write(
        "gpu/sgpu.yml", "project: {name: p}\nruns: {a: {gpus: 1, type: CPU, command: 'x'}}\n"
    )
    inside = checkout.folder / "gpu"
    assert planned(checkout, cwd=inside)["tree"] is None
    git(checkout.folder, "add", ".")
    git(checkout.folder, "commit", "-q", "-m", "second")
    before = planned(checkout, cwd=inside)
    assert before["tree"] == git(checkout.folder, "rev-parse", "HEAD:gpu")
    git(checkout.folder, "reset", "-q", "--soft", "HEAD~1")
    checkout.write("elsewhere.txt", "x")
    git(checkout.folder, "add", ".")
    git(checkout.folder, "commit", "-q", "-m", "squashed")
    after = planned(checkout, cwd=inside)
    assert after["tree"] == before["tree"]
    assert after["commit"] != before["commit"]


def test_outside_of_a_checkout_and_before_the_first_commit_nothing_is_said(
    sgpu: Any, tmp_path: Path
) -> None:
    sgpu.write("run.yaml", RUN)
    assert planned(sgpu) is None
    git(sgpu.folder, "init", "-q")
    assert set(planned(sgpu).values()) == {None}


def test_a_plan_calls_git_for_the_commit_and_for_the_files_and_launches_call_it_more_often(
    checkout: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, programs = tmp_path / "asked", tmp_path / "programs"
    programs.mkdir()
    program = programs / "git"
    program.write_text(f'#!/bin/sh\necho "$@" >> {asked}\nexec {shutil.which("git")} "$@"\n')
    program.chmod(0o755)
    path = f"{programs}{os.pathsep}{os.environ['PATH']}"
    monkeypatch.setitem(checkout.environ, "PATH", path)
    for command, calls in ((("plan",), 2), (("apply", "-y"), 4), (("apply", "-y"), 2)):
        checkout.done(*command)
        assert len(asked.read_text().splitlines()) == calls, command
        asked.unlink()
