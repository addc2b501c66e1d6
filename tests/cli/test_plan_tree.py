"""A saved plan is applied where the commit has the files that it was made from."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from tests.cli.conftest import Shell
from tests.cli.test_git_references import git

PROJECT = """project: {name: p}
runs:
  a: {gpus: 1, type: CPU, command: 'true', mlflow: {enabled: false}, grace: 500ms}
"""


def commit(folder: Path, message: str) -> None:
    git(folder, "add", ".")
    git(folder, "commit", "-q", "-m", message)


@pytest.fixture
def planned(sgpu: Shell) -> Shell:
    """A project in the folder `gpu` of a repository, with a saved plan of its branch `work`."""
    sgpu.write(".gitignore", ".sgpu\n*.plan\n")
    sgpu.write("gpu/sgpu.yml", PROJECT)
    git(sgpu.folder, "init", "-q", "-b", "main")
    commit(sgpu.folder, "first")
    git(sgpu.folder, "checkout", "-q", "-b", "work")
    sgpu.write("gpu/notes/a.txt", "a\n")
    commit(sgpu.folder, "notes")
    inside = replace(sgpu, folder=sgpu.folder / "gpu")
    inside.done("plan", "--out", "a.plan")
    return inside


def test_a_squash_and_changes_elsewhere_in_the_repository_leave_the_plan_valid(
    planned: Shell,
) -> None:
    top = planned.folder.parent
    git(top, "checkout", "-q", "main")
    git(top, "merge", "-q", "--squash", "work")
    (top / "elsewhere.txt").write_text("x")
    commit(top, "squashed")
    planned.done("apply", "a.plan")


def test_other_files_at_the_commit_refuse_the_plan_by_name(planned: Shell) -> None:
    for name in "bcdefgh":
        planned.write(f"{name}.txt", name)
    (planned.folder / "notes" / "a.txt").unlink()
    commit(planned.folder, "more")
    error = planned.exits(3, "apply", "a.plan", "-o", "json").json["error"]
    assert error["code"] == "other_tree"
    assert "`b.txt`, `c.txt`, `d.txt`, `e.txt`, `f.txt` and 3 more" in error["message"]
    assert not (planned.folder / ".sgpu" / "default" / "runs").exists()
    planned.done("show", "a.plan")
    git(planned.folder, "reset", "-q", "--hard", "HEAD~1")
    planned.done("apply", "a.plan")


def test_a_clone_that_lacks_the_planned_commit_says_to_fetch_it(
    planned: Shell, tmp_path: Path
) -> None:
    clone = tmp_path / "clone"
    git(
        tmp_path,
        "clone",
        "-q",
        "-b",
        "main",
        "--single-branch",
        f"file://{planned.folder.parent}",
        "clone",
    )
    shutil.copy(planned.folder / "a.plan", clone)
    project = str(clone / "gpu")
    refused = planned.exits(3, "apply", "a.plan", "--project", project, cwd=clone)
    assert "git does not have them to compare" in refused.err
    assert "git fetch" in refused.err
    git(clone, "fetch", "-q", "origin", "work")
    assert "`notes/a.txt`" in planned.here("apply", "a.plan", "--project", project, cwd=clone).err
    git(clone, "checkout", "-q", "FETCH_HEAD")
    planned.done("apply", "a.plan", "--project", project, cwd=clone)


@pytest.mark.parametrize("listed", ["a", "b"])
def test_a_plan_of_files_that_no_commit_holds_is_bound_by_their_digests(
    planned: Shell, listed: str
) -> None:
    # `b` launches nothing: `a` is not there to be forgotten, and the plan is of the file alone.
    planned.write("sgpu.yml", PROJECT.replace("  a:", f"  {listed}:").replace("'true'", "'echo'"))
    planned.done("plan", "--out", "b.plan")
    assert json.loads((planned.folder / "b.plan").read_text())["git"]["dirty"] is True
    commit(planned.folder, "what was planned")
    planned.done("apply", "b.plan")


def test_without_git_the_digests_count_alone(sgpu: Shell) -> None:
    sgpu.write("sgpu.yml", PROJECT)
    sgpu.done("plan", "--out", "a.plan")
    git(sgpu.folder, "init", "-q")
    commit(sgpu.folder, "first")
    sgpu.done("apply", "a.plan")
