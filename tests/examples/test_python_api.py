"""docs/python-api.md is run: its examples print what it says, each call of its tables is one that a
session has, with these defaults, and each can be made."""

import ast
import dataclasses
import inspect
import os
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from subprocess import run
from typing import Any

import pytest

from sgpu_decl.api import Applied, Location, PlanOptions, Session
from sgpu_decl.model.attempt_view import AttemptView
from sgpu_decl.model.plan import Plan
from sgpu_decl.model.state import Resource

PAGE = Path(__file__).resolve().parents[2] / "docs" / "python-api.md"
Copied = Callable[[str], Any]  # gives an Example of conftest.py


def test_the_example_prints_what_the_page_says(example: Copied) -> None:
    text = PAGE.read_text()
    part = text[text.index("<!-- example: begin") : text.index("<!-- example: end")]
    (script, output) = re.findall(r"```(?:python)?\n(.*?)```", part, flags=re.DOTALL)
    item = example("hello")
    file = item.folder / "run.yaml"
    file.write_text(file.read_text().replace("gpus: 4", "gpus: 2"))
    done = run(
        [sys.executable, "-c", script],
        cwd=item.folder, env={**os.environ, **item.environ},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout == output


def calls_of_the_page() -> Iterator[tuple[str, ast.Call]]:
    """The calls in the first column of the tables, with the facet that the section is about."""
    facet = ""
    for line in PAGE.read_text().splitlines():
        if line.startswith("## "):
            facet = "runs" if line == "## Runs" else ""
        if line.startswith("| `"):
            for text in re.findall(r"`([^`]+\))`", line.split(" | ")[0]):
                call = ast.parse(text, mode="eval").body
                assert isinstance(call, ast.Call)
                name = ast.unparse(call.func).removeprefix("session.")
                yield f"{facet}.{name}".strip("."), call


CALLS = list(calls_of_the_page())


@pytest.fixture
def session(tmp_path: Path) -> Iterator[Session]:
    (tmp_path / "run.yaml").write_text("name: hello\ngpus: 1\ntype: CPU\ncommand: ['true']\n")
    with Session.open(Location(project=tmp_path)) as opened:
        yield opened


def found(session: Session, name: str) -> Callable[..., object]:
    value: Any = session
    for part in name.split("."):
        value = getattr(value, part)
    call: Callable[..., object] = value
    return call


def test_the_tables_name_the_calls() -> None:
    assert len(CALLS) > 25


@pytest.mark.parametrize(("name", "call"), CALLS, ids=[name for name, _ in CALLS])
def test_a_call_of_the_page_has_these_parameters_and_defaults(
    session: Session, name: str, call: ast.Call
) -> None:
    signature = inspect.signature(found(session, name))
    signature.bind(*call.args, **{str(word.arg): None for word in call.keywords})
    shown = {str(word.arg): ast.literal_eval(word.value) for word in call.keywords}
    assert {one: signature.parameters[one].default for one in shown} == shown
    given = [word.id for word in call.args if isinstance(word, ast.Name)]
    assert given == list(signature.parameters)[: len(given)]


def test_values_have_what_the_page_says(session: Session) -> None:
    """The names between backticks, by the value that they are read from."""
    fields = {
        Location: "file project target variables sets variable_files",
        PlanOptions: "select exclude rerun retry_failed on_active destroy strict",
        Plan: "changes checks estimate summary",
        Applied: "launched adopted stopping failed unrecorded",
        AttemptView: "state ranks exit_code first_cause links",
        Resource: "address last gone",
    }
    text = PAGE.read_text()
    for kind, names in fields.items():
        members = {one.name for one in dataclasses.fields(kind)} | set(dir(kind))
        for name in names.split():
            assert name in members, (kind, name)
            assert f"`{name}`" in text, name
    finding = next(session.doctor.machine())
    for name in ("code", "verdict", "summary", "hint"):
        assert hasattr(finding, name)
        assert f"`{name}`" in text


@pytest.mark.expensive
def test_each_call_about_runs_takes_the_name_of_one(tmp_path: Path, example: Copied) -> None:
    item = example("hello")
    assert item.sgpu("apply", "-y").returncode == 0
    script = """
import json
from sgpu_decl.api import Location, Session
from sgpu_decl.errors import InvalidInput, SgpuError

with Session.open(Location(project=".")) as session:
    runs = session.runs
    assert runs.find("hello", "hel*") == runs.current()
    assert runs.status("hello").state == runs.describe(["hello"])[0].state == "succeeded"
    assert str(runs.show("hello#1").view.ref) == str(runs.wait(["hello"], timeout=60)[0].ref)
    assert list(runs.logs("hello")) and list(runs.logs("hello", ranks=[0]))
    assert len(runs.results("hello")) == len(runs.status("hello").ranks)
    assert len(runs.table(["hello"]).rows) == 1
    assert runs.output("hello").files == 0
    runs.cancel("hello")
    assert session.jobs.find() == [] and session.graph() and session.check()
    (resource,) = [one for one in session.state.resources() if one.last is not None]
    with open("state.json", "w") as file:
        json.dump(session.state.pull(), file)
    assert session.gc(keep_last=0) == session.gc(keep_last=0)  # the first deleted nothing
    assert runs.results("hello")
    assert str(session.state.move(resource.address, "run.other")[1]) == "run.other"
    assert str(session.state.remove("run.other")) == "run.other"
with open("run.yaml", "a") as file:
    file.write("gpuss: 2\\n")
with Session.open() as session:
    try:
        session.check()
    except InvalidInput as error:
        for finding in error.diagnostics:
            print(finding.place, finding.summary)
        assert "unknown key `gpuss`" in str(error), str(error)
"""
    done = run(
        [sys.executable, "-c", script],
        cwd=item.folder, env={**os.environ, **item.environ},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "unknown key `gpuss`" in done.stdout
