"""Each command has help with examples; the words of other tools name ours."""

import re
import shlex

import click
import pytest

from sgpu_decl.cli.commands import (
    COMMANDS,
    EXAMPLES,
    HELP_OPTIONS,
    RARE_OPTIONS,
    SECTIONS,
    SUBCOMMANDS,
    LazyGroup,
)
from sgpu_decl.cli.main import main
from sgpu_decl.cli.other_names import GROUP_SYNONYMS, SYNONYMS
from tests.cli.test_every_option import TREE

PATHS = sorted({*TREE, *COMMANDS})


@pytest.mark.parametrize("path", PATHS)
def test_help_has_three_forms_and_an_example(path: str, capsys: pytest.CaptureFixture[str]) -> None:
    shown = set()
    for form in ([*path.split(), "--help"], [*path.split(), "-h"], ["help", *path.split()]):
        assert main(form) == 0
        shown.add(capsys.readouterr().out)
    (text,) = shown
    assert "Example" in text
    assert EXAMPLES[path]
    for line in EXAMPLES[path]:
        assert f"\n    {line}\n" in text
        assert line.startswith(f"sgpu {path}")


@pytest.mark.parametrize("line", sorted({line for lines in EXAMPLES.values() for line in lines}))
def test_an_example_is_a_command_line_that_is_understood(line: str) -> None:
    command: click.Command = LazyGroup(COMMANDS, "sgpu", "")
    context = click.Context(command, info_name="sgpu", help_option_names=HELP_OPTIONS)
    words = shlex.split(line)[1:]
    while isinstance(command, click.Group) and words and not words[0].startswith("-"):
        _, found, words = command.resolve_command(context, words)
        assert found is not None
        command = found
    command.make_context(command.name, list(words), parent=context)


def test_examples_belong_to_commands() -> None:
    assert set(PATHS) == set(EXAMPLES)


@pytest.mark.parametrize("word", SYNONYMS)
def test_a_word_of_another_tool_names_ours(word: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert word not in COMMANDS
    assert main([word, "train"]) == 64
    shown = capsys.readouterr().err
    assert f"no command `{word}`: sgpu calls it `{SYNONYMS[word]}`" in shown
    assert f"`sgpu {SYNONYMS[word]} train`" in shown
    assert main(["help", word]) == 64
    assert f"`sgpu {SYNONYMS[word]}`" in capsys.readouterr().err


GROUPED = sorted((group, word) for group, words in GROUP_SYNONYMS.items() for word in words)


@pytest.mark.parametrize(("group", "word"), [item for item in GROUPED if item[0] != "sgpu"])
def test_a_group_knows_the_words_of_other_tools(
    group: str, word: str, capsys: pytest.CaptureFixture[str]
) -> None:
    ours = GROUP_SYNONYMS[group][word]
    assert word not in SUBCOMMANDS[group]
    assert main([group, word]) == 64
    shown = capsys.readouterr().err
    assert f"no command `{word}`: sgpu calls it `{ours}`" in shown
    assert f"`sgpu {group} {ours}`" in shown


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["jobs"], "`sgpu status`"),
        (["jobs", "ps"], "`sgpu status`"),
        (["jobs", "cancel", "train"], "`sgpu cancel train`"),
        (["runs", "ls"], "`sgpu status`"),
        (["jobs", "frobnicate"], "no command `jobs`"),
    ],
)
def test_a_subject_before_the_command_is_left_out(
    words: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words) == 64
    assert told in capsys.readouterr().err


def test_options_of_another_tool_are_not_repeated(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["stop", "--all"]) == 64
    assert "`sgpu cancel`;" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "told"),
    [(["plna"], "did you mean `plan`?"), (["logs", "train"], "`sgpu logs` has no command")],
)
def test_help_on_what_is_no_command(
    words: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["help", *words]) == 64
    assert told in capsys.readouterr().err


def test_the_list_of_commands_has_each_once_in_a_section(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert sorted(name for names in SECTIONS.values() for name in names) == sorted(COMMANDS)
    assert main(["--help"]) == 0
    shown = capsys.readouterr().out
    assert all(f"\n{title}:\n" in shown for title in SECTIONS)
    columns = {line.index(COMMANDS[line.split()[0]][1]) for line in shown.splitlines()
               if line[:2] == "  " and line.split()[0] in COMMANDS}  # fmt: skip
    assert len(columns) == 1
    assert all(len(line) <= 80 for line in shown.splitlines())


SCREEN = 36
"""Lines of 80 columns, with what is typed next."""


def test_the_help_of_a_command_fits_on_a_screen_with_rare_options_below(
    capsys: pytest.CaptureFixture[str],
) -> None:
    rare: set[str] = set()
    for path in PATHS:
        assert main([*path.split(), "--help"]) == 0
        common, _, below = capsys.readouterr().out.partition("\nMore options:\n")
        assert common.count("\n") < SCREEN, path
        assert f"\n    sgpu {path}" in common, path
        listed = re.findall(r"^  (?:-\w, )?(--[\w-]+)", below, re.MULTILINE)
        assert RARE_OPTIONS.issuperset(listed), path
        of_group = "[COMMAND]" in common or path.startswith("doctor ")
        shown = re.findall(r"^  (--[\w-]+)", common, re.MULTILINE)
        assert of_group or RARE_OPTIONS.isdisjoint(shown), path
        rare.update(listed)
    assert rare == RARE_OPTIONS
