"""The words of other tools: each is refused with a hint, and what the hint offers is taken."""

import re
import shlex

import click
import pytest

from sgpu_decl.cli.main import main
from sgpu_decl.cli.other_names import (
    OTHER_OPTIONS,
    OTHER_WAYS,
    PROGRAMS,
    check_program,
    options_of,
)
from sgpu_decl.errors import Usage
from tests.cli.test_every_option import TREE

PATHS = {f"sgpu {path}": command for path, command in TREE.items()}


def refused_offers(hint: str, here: click.Command | None = None) -> list[str]:
    """What a hint offers between backticks and no command takes. `here` is the command that a bare
    option is for."""
    found = []
    for text in re.findall("`([^`]+)`", hint):
        words = shlex.split(text)
        command = here
        if words[0] == "sgpu":
            path = max((path for path in PATHS if f"{text} ".startswith(f"{path} ")), default=None)
            command = PATHS[path] if path else None
            if command is None:
                found.append(text)
                continue
        typed = words[: words.index("--")] if "--" in words else words
        options = [word for word in typed if word.startswith("-")]
        if options and (command is None or not options_of(command).issuperset(options)):
            found.append(text)
    return found


@pytest.mark.parametrize("word", [*OTHER_WAYS, *PROGRAMS, "train.py"])
def test_a_command_that_sgpu_lacks_has_a_way_out(
    word: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([word, "train"]) == 64
    shown = capsys.readouterr().err
    assert f"no command `{word}`" in shown
    hint = shown.partition("hint: ")[2]
    assert hint
    assert refused_offers(hint) == []


@pytest.mark.parametrize("option", OTHER_OPTIONS)
def test_an_option_of_another_tool_has_a_hint_that_is_taken(
    option: str, capsys: pytest.CaptureFixture[str]
) -> None:
    used = set()
    for path, command in PATHS.items():
        options = options_of(command)
        keys = [key for key in OTHER_OPTIONS[option] if key == path or key in options]
        if not keys or isinstance(command, click.Group) or option[:2] in options:
            continue
        if option in options:
            continue
        key = path if path in keys else keys[0]
        hint = OTHER_OPTIONS[option][key]
        used.add(key)
        assert main([*path.split()[1:], option]) == 64
        assert f"hint: {hint}" in capsys.readouterr().err, path
        assert refused_offers(hint, command) == [], path
    assert used


@pytest.mark.parametrize("option", ["--all", "--frobnicate", "--jsn"])
def test_no_option_is_offered_for_what_it_does_not_mean(
    option: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for path, command in PATHS.items():
        if isinstance(command, click.Group) or option in options_of(command):
            continue
        assert main([*path.split()[1:], option]) == 64
        assert "did you mean" not in capsys.readouterr().err, path


@pytest.mark.parametrize(
    ("typed", "hint"),
    [
        (["A=1", "python", "t.py"], "`sgpu run --set env.variables.A=1 -- python t.py`"),
        (
            ["A=1 2", "B=3", "t"],
            "`sgpu run --set 'env.variables.A=1 2' --set env.variables.B=3 -- t`",
        ),
        (["python t.py | tee log"], "`sgpu run -- sh -c 'python t.py | tee log'`"),
        (["python t.py"], "`sgpu run -- python t.py`"),
        (["python $FILE"], "`sgpu run -- sh -c 'python $FILE'`"),
    ],
)
def test_a_line_of_a_shell_is_no_program(typed: list[str], hint: str) -> None:
    with pytest.raises(Usage) as refused:
        check_program(typed, lambda _: False)
    assert refused.value.hint == hint
    assert refused_offers(hint) == []


@pytest.mark.parametrize(
    "typed", [["train.py:main", "lr=0.1"], ["sh", "-c", "a | b"], ["my train.py"], ["A=1"]]
)
def test_a_program_with_its_arguments_is_taken(typed: list[str]) -> None:
    check_program(typed, lambda word: word == "my train.py")
