"""The page of JSON answers lists each command that has one, and the keys that it prints."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Answer, Shell
from tests.docs.pages import script

RUN = """\
name: train
gpus: 2
type: CPU
entrypoint: train.py:main
args: {fails: FAILS}
retry: {max: 1, on: [error], backoff: 10ms}
mlflow: {enabled: false}
grace: 500ms
"""
TRAIN = """\
import os

def main(fails, n=0):
    print("hi")
    open("left", "w").close()
    if fails and os.environ["RANK"] == "1":
        raise ModuleNotFoundError("No module named 'einops'")
    return {"fails": fails, "n": n}
"""
SWEEP = RUN.replace("name: train", "name: sweep\nmatrix: {n: [1, 2]}").replace("FAILS", "false")
COMMANDS = {
    "validate": "run.yaml",
    "fmt": "",
    "graph": "run.yaml --plan",
    "plan": "run.yaml --files",
    "status": "",
    "top": "train",
    "wait": "train",
    "cancel": "train",
    "show": "train",
    "results": "train#1",
    "diff": "train",
    "logs": "train",
    "fetch": "train",
    "state list": "",
    "state show": "train",
    "state pull": "",
    "env bases": "",
    "env show": "this",
    "env requirements": "ai-4",
    "env diff": "this this",
    "schema": "",
    "explain": "run.retry",
    "gpus": "",
    "gc": "--dry-run --keep-last 0",
    "doctor": "",
    "import": "theirs.txt --from skypilot",
    "init": "elsewhere",
    "version": "",
    "destroy": "-y",
    "state mv": "train other",
    "state rm": "other",
}
"""What each is called with after the run, in this order."""
ELSEWHERE = {
    "adopt",
    "apply",
    "bundle render",
    "dev workspace",
    "doctor probe",
    "mlflow sync",
    "run",
    "stacks",
    "start",
    "state claim",
    "state compact",
    "state log",
    "state migrate",
    "state push",
    "state unlock",
}
"""Those that need more than a run that has ended; `apply` is what starts it."""

TABLE = "results sweep"
PAGE = script("json_answers")
ANSWERS, OBJECTS = PAGE.ANSWERS, PAGE.OBJECTS
THEIRS = {"spec", "value", "axes", "returned", "metrics", "links", "actions", "left_out"}
"""Mappings whose keys are names of the user's, of backends, or of one value."""
IN_SCHEMAS = {"plan", "changes", "checks", "estimate", "summary", "git"}
STATE = {"resources", "intents", "package_lists"}


def test_every_command_with_a_json_answer_is_listed() -> None:
    answering = {
        words.removeprefix("sgpu ")
        for words, command, _ in script("commands").command_tree()
        for option in command.params
        if option.name == "output" and "json" in option.type.choices
    }
    assert answering == set(ANSWERS)
    assert answering == {*COMMANDS, *ELSEWHERE}


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Answer]:
    folder: Path = tmp_path_factory.mktemp("answers")
    (folder / "run.yaml").write_text(RUN.replace("FAILS", "false"))
    (folder / "sweep.yaml").write_text(SWEEP)
    (folder / "NOTES.md").write_text("")
    (folder / "theirs.txt").write_text("run: python train.py\n")
    (folder / "train.py").write_text(TRAIN)
    shell = Shell(folder, dict(os.environ))
    shell.done("apply", "-y")
    (folder / "run.yaml").write_text(RUN.replace("FAILS", "true"))
    (folder / "train.py").write_text(f"{TRAIN}# changed\n")
    found = {"apply": shell.here("apply", "-y", "-o", "json")}
    shell.done("apply", "-y", "sweep.yaml")
    found[TABLE] = shell.here("results", "sweep", "-o", "json")
    for words, more in COMMANDS.items():
        found[words] = shell.here(*words.split(), *more.split(), "-o", "json")
    return found


@pytest.mark.parametrize("words", ["apply", *COMMANDS])
def test_an_answer_has_the_keys_of_the_page(words: str, answers: dict[str, Answer]) -> None:
    data: dict[str, Any] = answers[words].json["data"]
    listed = ANSWERS[words]
    assert set(listed.keys) <= set(data)
    assert set(data) <= {*listed.keys, *listed.sometimes}
    schema = (
        set(data)
        if words == "schema"
        else STATE
        if words == "state pull"
        else IN_SCHEMAS
        if "plan" in (words, *data)
        else set()
    )
    assert [*_unlisted(data, listed.inside, THEIRS | schema)] == []


def test_the_rows_of_a_table_are_those_of_the_page(answers: dict[str, Answer]) -> None:
    data = answers[TABLE].json["data"]
    assert [*_unlisted(data, ANSWERS["results"].inside, THEIRS)] == []
    assert data["runs"][0]["axes"] == {"n": 1}
    assert data["runs"][0]["returned"] == {"fails": False, "n": 1}


def test_what_the_answers_of_this_test_hold_is_most_of_the_page(
    answers: dict[str, Answer],
) -> None:
    """So that a key which is gone from the answers cannot stay on the page."""
    seen: set[str] = set()
    for words, answer in answers.items():
        listed = ANSWERS["results" if words == TABLE else words]
        [*_unlisted(answer.json["data"], listed.inside, THEIRS, seen)]
    assert seen == set(OBJECTS) - NOT_HERE


NOT_HERE = {
    "A changed package",
    "A Ray cluster",
    "A diagnostic",
    "A lack of use",
    "A launch of a job",
    "A use",
    "A file with a stack",
    "A missing file",
    "A notice",
    "A related place",
    "A stack",
    "A task of a launch",
    "A thing that gc could not do",
    "GPUs of a place",
    "Ranks with equal stacks",
    "An edge of a graph",
    "An entry of a shared state",
    "An owner that is not found",
}


def _unlisted(
    data: dict[str, Any], inside: dict[str, str], passed: set[str], seen: set[str] | None = None
) -> Iterator[str]:
    """The keys of objects in `data` that the page lacks, and those of the page that are missing."""
    for key, value in data.items():
        many = isinstance(value, list)
        objects = [one for one in (value if many else [value]) if isinstance(one, dict)]
        name = inside.get(f"{key}[]" if many else key)
        if not objects or (name is None and key in passed):
            continue
        if name is None:
            yield f"`{key}` is not described"
            continue
        if seen is not None:
            seen.add(name)
        listed = OBJECTS[name]
        for item in objects:
            yield from (f"{name}: `{one}` is missing" for one in listed.keys.keys() - item.keys())
            more = item.keys() - {*listed.keys, *listed.sometimes}
            yield from (f"{name}: `{one}` is not described" for one in more)
            yield from _unlisted(item, listed.inside, passed, seen)
