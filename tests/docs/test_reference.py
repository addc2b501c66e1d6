"""The pages of docs/reference/ are what the models, the commands and the tables give."""

import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest

from sgpu_decl.model.backend_kinds import kind_named
from sgpu_decl.planner.policy import OPTIONAL_FIELDS
from tests.cli.conftest import Shell
from tests.docs.pages import ROOT
from tests.support import check_golden

SCRIPTS = ROOT / "scripts" / "reference"
REFERENCE = ROOT / "docs" / "reference"
GENERATED = ("commands.md", "fields.md", "json.md", "variables.md", "../failures.md")
EXAMPLES = tomllib.loads((SCRIPTS / "field_examples.toml").read_text())
VARIABLE = re.compile(r"(?<![\w.])SGPU_[A-Z_]*[A-Z](?![\w%])(?! =)")
NO_VARIABLES = {"SGPU_DOCTOR"}  # the doctor submits it to see that a workspace refuses it
Check = Callable[[str], None]
RUN = {"gpus": "8", "type": "A10", "entrypoint": "train.py:main"}
ELSEWHERE = OPTIONAL_FIELDS - kind_named("local").capabilities.fields
MAIL = re.compile(r"on_finish: \{(success|failure):")  # other backends send none
SHARED = "environments: {shared: {lock: uv.lock}}\n"  # what `env.use` names
PROJECT = "project: {name: example}\n"
TRAIN = "runs: {train: {gpus: 8, type: A10, entrypoint: train.py, backend: databricks}}\n"


def test_the_pages_are_current(tmp_path: Path) -> None:
    """`SGPU_REGEN=1` writes them."""
    folder = tmp_path / "reference"
    folder.mkdir()
    subprocess.run([sys.executable, str(SCRIPTS), str(folder)], check=True)
    assert {page.resolve() for page in tmp_path.rglob("*.md")} == {
        (folder / name).resolve() for name in GENERATED
    }
    for name in GENERATED:
        check_golden(REFERENCE / name, (folder / name).read_text())


def test_every_field_says_what_a_change_does_and_has_an_example_that_names_it() -> None:
    """The pages are not written while a field has none."""
    page = (REFERENCE / "fields.md").read_text()
    fields = re.findall(r"^#{3,4} `([^`]+)`$", page, re.MULTILINE)
    shown = {**EXAMPLES["run"], **EXAMPLES["project"]}
    assert sorted(fields) == sorted(shown)
    assert page.count("- Example:") == len(fields)
    assert page.count("\n- A change: ") == len(fields)
    assert {
        path: example
        for path, example in shown.items()
        if path != "backend.kind"  # the name of a kind stands for it
        for name in path.split(".")
        if name != "NAME" and not re.search(rf"\b{name}\b", example)
    } == {}


def test_the_examples_of_a_run_are_valid(tmp_path: Path, here: Check) -> None:
    """All of them, in one project."""
    runs = ["  train: {gpus: 8, type: A10, entrypoint: train.py}"]  # what `after` names
    for number, (path, example) in enumerate(EXAMPLES["run"].items()):
        if path == "name":  # in a project, a run's name is its key
            continue
        given = set(re.findall(r"^\w+", example, re.MULTILINE))
        given |= {"entrypoint"} if "command" in given else set()
        lines = [f"{name}: {value}" for name, value in RUN.items() if name not in given]
        elsewhere = given & ELSEWHERE or MAIL.match(example)
        lines += ["backend: databricks"] if elsewhere else []
        lines += example.splitlines()
        runs += [f"  example{number}:", *(f"    {line}" for line in lines)]
    here("\n".join([PROJECT + SHARED + "runs:", *runs]))


@pytest.mark.parametrize("path", EXAMPLES["project"])
def test_an_example_of_a_project_is_valid(path: str, here: Check) -> None:
    example = EXAMPLES["project"][path]
    key = example.partition(":")[0]
    here((PROJECT if key != "project" else "") + (TRAIN if key != "runs" else "") + example)


@pytest.fixture
def here(tmp_path: Path) -> Check:
    """Give a call that validates the text of a project file."""
    for folder in (tmp_path, tmp_path / "src"):
        folder.mkdir(exist_ok=True)
        (folder / "train.py").write_text("def main(**arguments): ...\n")

    def check(text: str) -> None:
        (tmp_path / "sgpu.yml").write_text(text)
        Shell(tmp_path, dict(os.environ)).done("validate", "sgpu.yml")

    return check


def test_every_variable_of_the_source_is_on_the_page() -> None:
    page = (REFERENCE / "variables.md").read_text()
    listed = set(re.findall(r"^(?:### |\| )`(SGPU_\w+)`", page, re.MULTILINE))
    found = {
        name
        for file in (ROOT / "sgpu_decl").rglob("*.py")
        for name in VARIABLE.findall(file.read_text())
    }
    assert found - NO_VARIABLES == listed
