"""`plan --base`: which changes are those of this branch, by files of git's object store."""

import hashlib
import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Shell
from tests.cli.test_git_references import git
from tests.content.conftest import pack_wheel

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


VALUED = """\
project: {name: p}
variables: {n: 1}
runs:
  a: {gpus: 1, type: CPU, entrypoint: 'train.py:main', args: {n: '${var.n}'}}
"""


@pytest.fixture
def valued(project: Shell) -> Shell:
    """The project with a variable, and files that give it values: one among the code, one beside
    the project, and one that git does not keep."""
    project.write("gpu/sgpu.yml", VALUED)
    project.write("gpu/train.py", "def main(n): ...\n")
    project.write("gpu/values.yml", "n: 2\n")
    project.write("values/shared.yml", "n: 3\n")
    project.write("values/mine.yml", "n: 4\n")
    project.write(".gitignore", ".sgpu\n*.plan\nleft-out.txt\nmine.yml\n")
    commit(project, "with values")
    return project


@pytest.mark.parametrize("file", ["values.yml", "../values/shared.yml", "../values/mine.yml"])
def test_the_same_values_are_no_change(valued: Shell, file: str) -> None:
    assert causes(valued, "--base", "work", "--var-file", file) == {"a": "pending"}


@pytest.mark.parametrize("file", ["values.yml", "../values/shared.yml"])
def test_other_values_are_a_change_of_the_branch(valued: Shell, file: str) -> None:
    valued.write(f"gpu/{file}", "n: 9\n")
    assert causes(valued, "--base", "work", "--var-file", file) == {"a": "change"}


def test_a_new_file_of_values_is_a_change_of_the_branch(valued: Shell) -> None:
    valued.write("values/new.yml", "n: 9\n")
    assert causes(valued, "--base", "work", "--var-file", "../values/new.yml") == {"a": "change"}
    valued.write("values/new.yml", "n: 1\n")
    assert causes(valued, "--base", "work", "--var-file", "../values/new.yml") == {"a": "pending"}


WHEEL = "demo-1.0-py3-none-any.whl"


@pytest.mark.parametrize(
    "env",
    [
        "{lock: ../locks/pylock.toml}",
        "{requirements: ../locks/all.txt}",
        "{dependencies: ['-r ../locks/all.txt']}",
        f"{{dependencies: [../locks/{WHEEL}]}}",
        "{dependencies: ['-r ../locks/all.txt'], python: ./python}",
    ],
)
def test_an_environment_of_files_beside_the_project_is_no_change(project: Shell, env: str) -> None:
    locked = "[[packages]]\nname = 'demo'\nversion = '1.0'\n[[packages.wheels]]\n"
    (project.folder / "locks").mkdir()
    wheel = pack_wheel(project.folder / "locks", "demo", "1.0", {"demo.py": ""})
    assert wheel.name == WHEEL
    found = hashlib.sha256(wheel.read_bytes()).hexdigest()
    project.write(
        "locks/pylock.toml",
        f"lock-version = '1.0'\ncreated-by = 'x'\n{locked}path = '{WHEEL}'\n"
        f"hashes = {{sha256 = '{found}'}}\n",
    )
    project.write("locks/all.txt", "-r deep/more.txt\n")
    project.write("locks/deep/more.txt", f"../locks/{WHEEL}\n")
    project.write("gpu/sgpu.yml", HEAD + RUN.replace("mlflow:", f"env: {env}, mlflow:") % "a")
    project.write(".gitignore", ".sgpu\npython\n")
    (project.folder / "gpu/python").symlink_to(sys.executable)
    commit(project, "with an environment")
    assert causes(project, "--base", "work") == {"a": "pending", "environment.a": "pending"}


def test_no_program_of_the_base_is_run(project: Shell) -> None:
    script = project.write("gpu/python.sh", "#!/bin/sh\ntouch ../ran\n")
    script.chmod(0o755)
    env = "env: {dependencies: [six==1.17.0], python: ./python.sh}, mlflow:"
    project.write("gpu/sgpu.yml", HEAD + RUN.replace("mlflow:", env) % "a")
    commit(project, "with a program")
    project.write("gpu/sgpu.yml", runs("a"))
    assert causes(project, "--base", "work")["a"] == "change"
    assert not list(project.folder.parent.rglob("ran"))


def test_what_is_ignored_above_the_project_is_no_change(project: Shell) -> None:
    project.write(".sgpuignore", "notes.txt\n")
    project.write("gpu/notes.txt", "1")
    commit(project, "with notes")
    project.write("gpu/notes.txt", "2")
    assert set(causes(project, "--base", "work").values()) == {"pending"}


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
    project.done("plan", "--base", "main", "--out", "p.plan", cwd=here)
    shown = project.data("show", "p.plan", cwd=here)
    assert [change["cause"] for change in shown["changes"]] == ["pending", "withdrawn", "change"]
    project.done("apply", "-y", "--detach", "p.plan", cwd=here)
    project.done("wait", "a", "c", cwd=here)


def test_nothing_of_the_base_is_left_behind(project: Shell, tmp_path: Path) -> None:
    folder = tmp_path / "temporary"
    folder.mkdir()
    (project.folder / "gpu/link").symlink_to("data.txt")
    commit(project, "a link")
    status = git(project.folder, "status", "--porcelain")
    inside = replace(project, environ={**project.environ, "TMPDIR": str(folder)})
    assert "pending" in inside.ran("plan", "--base", "work", cwd=project.folder / "gpu").out
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
    told = shell.exits(1, "plan", *words, cwd=cwd)
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
    project.done("plan", "--base", made, cwd=repository / "gpu")
    assert os.listdir(outside) == []


def blob(repository: Path, text: str) -> str:
    return git(repository, "hash-object", "-w", "--stdin", stdin=text)
