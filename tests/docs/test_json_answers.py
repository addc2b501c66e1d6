"""The page of JSON answers lists each command that has one, and the keys that it prints."""

import os
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Answer, Shell
from tests.docs.pages import script

RUN = "name: train\ngpus: 2\ntype: CPU\ncommand: [echo, hi]\nmlflow: {enabled: false}\n"
COMMANDS = {
    "validate": "",
    "fmt": "",
    "graph": "--plan",
    "plan": "--files",
    "status": "",
    "wait": "train",
    "cancel": "train",
    "show": "train",
    "results": "train",
    "diff": "train train",
    "logs": "train",
    "fetch": "train",
    "state list": "",
    "state show": "train",
    "state pull": "",
    "env bases": "",
    "env show": "this",
    "env requirements": "ai-4",
    "env diff": "this this",
    "schema": "run.retry",
    "explain": "unknown_key",
    "gc": "--dry-run",
    "doctor": "",
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
    "dev workspace",
    "mlflow sync",
    "run",
    "stacks",
    "state claim",
    "state compact",
    "state grants",
    "state log",
    "state migrate",
    "state unlock",
}
"""Those that need more than a run that has ended; `apply` is what starts it."""

ANSWERS = script("json_answers").ANSWERS


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
    (folder / "run.yaml").write_text(RUN)
    shell = Shell(folder, dict(os.environ))
    found = {"apply": shell.here("apply", "-y", "-o", "json")}
    for words, more in COMMANDS.items():
        found[words] = shell.here(*words.split(), *more.split(), "-o", "json")
    return found


@pytest.mark.parametrize("words", ["apply", *COMMANDS])
def test_an_answer_has_the_keys_of_the_page(words: str, answers: dict[str, Answer]) -> None:
    data: dict[str, Any] = answers[words].json["data"]
    listed = ANSWERS[words]
    assert set(listed.keys) <= set(data)
    assert set(data) <= {*listed.keys, *listed.sometimes}
