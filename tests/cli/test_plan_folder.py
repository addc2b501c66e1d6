"""A saved plan is applied to the project that the command opens. What the plan says of its own
folder has to agree."""

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sgpu_decl.model.jsonable import canonical, digest
from tests.cli.conftest import Shell
from tests.cli.test_git_references import git

PROJECT = "project: {name: p}\nruns: {}\n"
RUN = "name: a\ngpus: 1\ntype: CPU\ncommand: 'true'\nmlflow: {enabled: false}\n"


def launched(sgpu: Shell) -> list[Path]:
    return [path for path in sgpu.folder.parent.rglob("runs") if path.parent.parent.name == ".sgpu"]


def edited(sgpu: Shell, project: str) -> None:
    """Write another project into a plan, as somebody would who knows of the checksum."""
    file = sgpu.folder / "run.plan"
    plan: dict[str, Any] = {**json.loads(file.read_text()), "project": project}
    del plan["checksum"]
    file.write_text(canonical({**plan, "checksum": digest(canonical(plan))}))


@pytest.fixture
def below(sgpu: Shell) -> Shell:
    """A project with a folder below, and a plan for that."""
    sgpu.write("sub/run.yaml", RUN)
    (sgpu.folder / "link").symlink_to("sub")
    (sgpu.folder.parent / "aside").symlink_to(sgpu.folder / "sub")
    sgpu.done("plan", "sub/run.yaml", "--project", "sub", "--out", "run.plan")
    sgpu.write("sgpu.yml", PROJECT)
    (sgpu.folder / "deep" / "er").mkdir(parents=True)
    return sgpu


PROJECTS: dict[str, Callable[[Path], str]] = {
    "as it was planned": lambda top: f"{top}/sub",
    "a link to it": lambda top: f"{top}/link",
    "a link outside": lambda top: f"{top.parent}/aside",
    "there and back": lambda top: f"{top}/deep/../sub",
    "nowhere": lambda top: f"{top}/missing/sub",
}


@pytest.mark.parametrize("project", PROJECTS.values(), ids=PROJECTS)
def test_a_plan_for_a_folder_below_is_applied_nowhere_else(
    below: Shell, project: Callable[[Path], str]
) -> None:
    edited(below, project(below.folder))
    plan, outside = str(below.folder / "run.plan"), below.folder.parent
    for words, cwd in (
        ((), below.folder),
        ((), below.folder / "deep" / "er"),
        (("--project", "."), below.folder),
        (("--project", str(below.folder)), outside),
        ((), outside),
    ):
        refused = below.here("apply", plan, *words, "-o", "json", cwd=cwd)
        assert refused.code == 3, (words, cwd, refused.out)
        assert refused.json["error"]["code"] == "other_project"
        assert launched(below) == []


def test_a_plan_for_a_folder_below_says_where_it_is_applied(below: Shell) -> None:
    refused = below.here("apply", "run.plan", "-o", "json")
    assert (refused.code, refused.json["error"]["code"]) == (3, "other_project")
    assert refused.json["error"]["hint"].endswith(f"`--project {below.folder}/sub`")
    below.done("apply", "run.plan", "--project", "sub")


@pytest.mark.parametrize("by", ["a folder below", "a link", "a name", "no name"])
def test_a_plan_is_applied_from_wherever_its_project_is_opened(sgpu: Shell, by: str) -> None:
    sgpu.write(
        "p/sgpu.yml", "project: {name: p}\nruns:\n  a: {gpus: 1, type: CPU, command: 'true'}\n"
    )
    inside = replace(sgpu, folder=sgpu.folder / "p")
    inside.done("plan", "--set", "runs.a.mlflow.enabled=false", "--out", "../a.plan")
    (inside.folder / "below").mkdir()
    (sgpu.folder / "link").symlink_to("p")
    words, cwd = {
        "a folder below": ((), inside.folder / "below"),
        "a link": (("--project", "link"), sgpu.folder),
        "a name": (("--project", "p"), sgpu.folder),
        "no name": ((), sgpu.folder),
    }[by]
    sgpu.done("apply", str(sgpu.folder / "a.plan"), *words, cwd=cwd)


@pytest.fixture
def planned(sgpu: Shell) -> Shell:
    """A plan of the folder `ml` of a repository, which was removed then."""
    top = sgpu.folder / "first"
    sgpu.write("first/ml/run.yaml", RUN)
    sgpu.write("first/run.yaml", RUN)
    git(sgpu.folder, "init", "-q", "first")
    git(top, "remote", "add", "origin", "https://git.example.com/team/vision.git")
    sgpu.done("plan", "--out", "../../run.plan", cwd=top / "ml")
    shutil.copytree(top, sgpu.folder / "second")
    return sgpu


@pytest.mark.parametrize("kept", [False, True], ids=["another machine", "the same machine"])
@pytest.mark.parametrize(
    ("remote", "folder", "code"),
    [
        ("git@git.example.com:team/vision.git", "ml", 0),
        ("https://git.example.com/team/other.git", "ml", 3),
        ("git@git.example.com:team/vision.git", ".", 3),
    ],
    ids=["another checkout", "another repository", "another folder"],
)
def test_a_project_is_known_by_its_repository_and_the_folder_in_it(
    planned: Shell, remote: str, folder: str, code: int, *, kept: bool
) -> None:
    second = planned.folder / "second"
    git(second, "remote", "set-url", "origin", remote)
    if not kept:
        shutil.rmtree(planned.folder / "first")
    plan = str(planned.folder / "run.plan")
    for words, cwd in (((), second / folder), (("--project", str(second / folder)), second)):
        answer = planned.here("apply", plan, *words, "-o", "json", cwd=cwd)
        assert answer.code == code, answer.out
        if code:
            assert answer.json["error"]["code"] == "other_project"
            assert launched(planned) == []
            continue
        break  # it is applied once
