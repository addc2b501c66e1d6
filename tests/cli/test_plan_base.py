"""`plan --base`: which changes are those of this branch, by files of git's object store."""

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Shell
from tests.cli.test_git_references import git

HEAD = "project: {name: p}\nruns:\n"
RUN = "  %s: {gpus: 1, type: CPU, command: 'true', mlflow: {enabled: false}}\n"


def runs(*names: str) -> str:
    return HEAD + "".join(RUN % name for name in names)


def commit(shell: Shell, message: str) -> str:
    git(shell.folder, "add", ".")
    git(shell.folder, "commit", "-q", "-m", message)
    return git(shell.folder, "rev-parse", "HEAD")


@pytest.fixture
def project(sgpu: Shell) -> Shell:
    """A project in a folder of a repository, whose branch `main` has the runs a and b."""
    sgpu.write(".gitignore", ".sgpu\n*.plan\nleft-out.txt\n")
    sgpu.write("gpu/sgpu.yml", runs("a", "b"))
    sgpu.write("gpu/data.txt", "1")
    sgpu.write("gpu/left-out.txt", "here alone")
    git(sgpu.folder, "init", "-q", "-b", "main")
    commit(sgpu, "first")
    git(sgpu.folder, "checkout", "-q", "-b", "work")
    return sgpu


def plan(project: Shell, *words: str) -> Any:
    told = project.here("plan", *words, "-o", "json", cwd=project.folder / "gpu")
    assert told.code == 0, told
    return told.json["data"]


def causes(project: Shell, *words: str) -> dict[str, str | None]:
    found = plan(project, *words)
    return {change["address"].removeprefix("run."): change["cause"] for change in found["changes"]}


def test_changes_of_the_branch_and_of_the_base_are_told_apart(project: Shell) -> None:
    project.write("gpu/sgpu.yml", runs("a", "c"))
    assert causes(project, "--base", "main") == {"a": "pending", "b": "withdrawn", "c": "change"}
    assert causes(project) == {"a": None, "c": None}
    base = git(project.folder, "rev-parse", "main")
    assert plan(project, "--base", "main")["git"]["base"] == base
    # What is committed on the branch is the branch's as well.
    commit(project, "second")
    assert causes(project, "--base", "main") == {"a": "pending", "b": "withdrawn", "c": "change"}
    assert causes(project, "--base", "main", "--select", "a") == {"a": "pending"}


def test_a_change_of_the_code_is_one_of_all_its_runs(project: Shell) -> None:
    assert set(causes(project, "--base", "main").values()) == {"pending"}
    project.write("gpu/data.txt", "2")
    assert set(causes(project, "--base", "main").values()) == {"change"}


def test_views_fold_what_the_branch_does_not_cause(project: Shell) -> None:
    project.write("gpu/sgpu.yml", runs("a", "c"))
    here = project.folder / "gpu"
    text = project.here("plan", "--base", "main", cwd=here).out
    assert (
        "    1 change pending: the base does the same, and it is not applied yet: run.a\n" in text
    )
    assert "    1 change withdrawn: the base would do it, and this branch does not: run.b\n" in text
    assert "  + run.c  create c#1" in text
    markdown = project.here("plan", "--base", "main", "-o", "markdown", cwd=here).out
    table, _, folded = markdown.partition("<details><summary>1 change pending")
    assert "| create | `run.c` |" in table
    assert "| create | `run.a` |" in folded
    assert "`run.a`" not in table


def test_a_saved_plan_keeps_the_causes(project: Shell) -> None:
    here = project.folder / "gpu"
    project.write("gpu/sgpu.yml", runs("a", "c"))
    assert project.here("plan", "--base", "main", "--out", "p.plan", cwd=here).code == 0
    shown = project.here("show", "p.plan", "-o", "json", cwd=here).json["data"]
    assert [change["cause"] for change in shown["changes"]] == ["pending", "withdrawn", "change"]
    assert project.here("apply", "-y", "--detach", "p.plan", cwd=here).code == 0
    assert project.here("wait", "a", "c", cwd=here).code == 0


def test_nothing_of_the_base_is_left_behind(project: Shell, tmp_path: Path) -> None:
    folder = tmp_path / "temporary"
    folder.mkdir()
    (project.folder / "gpu/link").symlink_to("data.txt")
    commit(project, "a link")
    status = git(project.folder, "status", "--porcelain")
    inside = replace(project, environ={**project.environ, "TMPDIR": str(folder)})
    told = inside("plan", "--base", "work", cwd=project.folder / "gpu")
    assert told.code == 0
    assert "pending" in told.out
    assert not list(folder.glob("sgpu-base-*"))
    assert git(project.folder, "status", "--porcelain") == status


def test_a_base_that_is_not_valid_is_a_warning(project: Shell) -> None:
    project.write("gpu/sgpu.yml", runs("a") + "oops: 1\n")
    commit(project, "broken")
    project.write("gpu/sgpu.yml", runs("a"))
    found = plan(project, "--base", "work")
    assert [change["cause"] for change in found["changes"]] == ["change"]
    assert "base_invalid" in {check["id"] for check in found["checks"]}


def refused(shell: Shell, *words: str, cwd: Path | None = None) -> str:
    told = shell.here("plan", *words, cwd=cwd)
    assert told.code == 1
    assert "error[no_base]" in told.err
    return told.err


def test_a_base_that_is_not_here_is_refused_with_the_way_out(
    project: Shell, tmp_path: Path
) -> None:
    here = project.folder / "gpu"
    for ref in ("origin/main", "--help", "0" * 40):
        assert "git fetch" in refused(project, f"--base={ref}", cwd=here)
    clone = tmp_path / "clone"
    git(tmp_path, "clone", "-q", "--depth", "1", f"file://{project.folder}", str(clone))
    told = refused(project, "--base", "main~1", cwd=clone / "gpu")
    assert "this is a shallow clone" in told
    assert "--unshallow" in told


def test_a_commit_without_the_project_and_a_folder_without_git_are_refused(
    project: Shell, sgpu: Shell, tmp_path: Path
) -> None:
    project.write("other/sgpu.yml", runs("a"))
    told = refused(project, "--base", "main", cwd=project.folder / "other")
    assert "has no `sgpu.yml` in the folder of the project" in told
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "sgpu.yml").write_text(runs("a"))
    assert "is in no git checkout" in refused(sgpu, "--base", "main", cwd=outside)


def test_a_tree_that_leads_out_by_a_link_writes_nothing_there(
    project: Shell, tmp_path: Path
) -> None:
    """git checks out no such tree; one can be made by hand."""
    outside = tmp_path / "outside"
    outside.mkdir()
    repository = project.folder
    link = blob(repository, str(outside))
    text = blob(repository, "evil")
    tree = git(repository, "mktree", "--missing", stdin=f"100644 blob {text}\tx.txt\n")
    lines = f"120000 blob {link}\tlib\n040000 tree {tree}\tlib\n"
    project_tree = git(repository, "rev-parse", "main:gpu")
    whole = git(repository, "mktree", stdin=f"{lines}040000 tree {project_tree}\tgpu\n")
    made = git(repository, "commit-tree", whole, "-m", "evil")
    told = project.here("plan", "--base", made, cwd=repository / "gpu")
    assert told.code == 0
    assert os.listdir(outside) == []


def blob(repository: Path, text: str) -> str:
    return git(repository, "hash-object", "-w", "--stdin", stdin=text)
