"""Each `sgpu` command line of the pages is one that the command line understands."""

import re
import shlex
from pathlib import Path

import click
import pytest

from sgpu_decl.cli.commands import COMMANDS, HELP_OPTIONS, LazyGroup
from sgpu_decl.diagnostics.codes import registry
from sgpu_decl.errors import SgpuError
from tests.docs.pages import PAGES, blocks, prose, script, title

SHELLS = {"", "sh", "bash", "console"}
ON_PURPOSE = {"CHANGELOG.md"}
"""Pages with lines that are not understood: the words of other tools."""


def _lines(page: Path) -> list[str]:
    """Of blocks those that begin with `sgpu`, and all in backticks that name a command."""
    found = []
    for language, text in blocks(page):
        if language in SHELLS:
            joined = text.replace("\\\n", " ")
            has_prompt = re.search(r"^\$ ", joined, re.MULTILINE) is not None
            start = r"^\$ (sgpu .*)$" if has_prompt else r"^(sgpu .*)$"
            found += re.findall(start, joined, re.MULTILINE)
    return [*found, *_inline(prose(page))]


def _inline(text: str) -> list[str]:
    lines = re.findall(r"`(sgpu [a-z][^`]*)`", text.replace("\n", " "))
    # `sgpu doctor -t` names an option
    return [re.sub(r"( --?[a-z][a-z-]*)$", r"\1 …", line) for line in lines]


def _fault(line: str) -> str | None:
    """What click says of a line."""
    command: click.Command = LazyGroup(COMMANDS, "sgpu", "")
    command.params.append(click.Option(["--version"], is_flag=True))  # as `main` does
    # click remembers the first help option that a command is given
    context = click.Context(command, info_name="sgpu", help_option_names=HELP_OPTIONS)
    words = shlex.split(line, comments=True)[1:]
    try:
        while isinstance(command, click.Group) and words and not words[0].startswith("-"):
            if words[0] in ("...", "…") or words[0].isupper():
                return None
            _, found, words = command.resolve_command(context, words)
            assert found is not None
            command = found
            context = click.Context(command, info_name=command.name, parent=context)
        command.make_parser(context).parse_args(list(words))
    except (click.UsageError, SgpuError) as error:
        return f"`{line}`: {error}"
    return None


@pytest.mark.parametrize(
    "page", [pytest.param(page, id=title(page)) for page in PAGES if title(page) not in ON_PURPOSE]
)
def test_command_lines_are_understood(page: Path) -> None:
    assert [fault for line in _lines(page) if (fault := _fault(line))] == []


def test_command_lines_of_codes_are_understood() -> None:
    """Not those in examples of errors, which are examples of mistakes."""
    for code in registry().values():
        example = code.example if code.severities else None
        lines = _inline(" ".join(filter(None, (code.meaning, code.solution, example))))
        assert [fault for line in lines if (fault := _fault(line))] == [], code.id


def test_a_wrong_line_is_noticed() -> None:
    assert _fault("sgpu plan -t prod") is None
    assert "--taget" in str(_fault("sgpu plan --taget prod"))
    assert "plna" in str(_fault("sgpu plna"))


def test_the_examples_of_options_are_taken() -> None:
    """Click converts them, as it does what a user types."""
    commands = script("commands")
    for words, command, context in commands.command_tree():
        for option in command.params:
            if isinstance(option, click.Option) and not option.is_flag:
                value = shlex.split(commands.example(option, words.removeprefix("sgpu ")))[0]
                if not isinstance(option.type, click.Path):  # such a folder has to be there
                    option.process_value(context, (value,) if option.multiple else value)


def test_no_example_of_an_option_is_left_over() -> None:
    commands = script("commands")
    known = {
        (words.removeprefix("sgpu "), name)
        for words, command, _ in commands.command_tree()
        for option in command.params
        for name in option.opts
    }
    assert set(commands.OF_COMMANDS) <= known
    assert set(commands.VALUES) <= {name for _, name in known}
