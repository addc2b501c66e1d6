"""Text of the user's is shown, and obeyed by no terminal."""

import ast
import json
import re
from pathlib import Path

import pytest

import sgpu_decl.cli
from tests.cli.conftest import AtTerminal, Shell

# The title, the clipboard (OSC 52), a link (OSC 8), the cursor, hidden text, the C1 form of all
# that, and a direction of reading that shows other words than stand there.
EVIL = "\x1b]0;t\x07 \x1b]52;c;eA==\x07 \x1b]8;;x\x1b\\ \x1b[2J \x1b[8m \x9b2J \u202e \u2066 \r"
OBEYED = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]")
COLOURS = re.compile(r"\x1b\[[0-9;:]*m")  # which ranks may use
OURS = re.compile(r"\x1b\[(0|1|2|31|32|33|36)m")
# A slow machine shows what it waits for, in a line that is written again and removed.
PROGRESS = re.compile(r"\x1b\[\?25[hl]|\r?(\x1b\[1A)?\x1b\[2K|\x1b\[9[01]m")


@pytest.fixture
def evil(sgpu: Shell) -> Shell:
    """A run with it in every text and every key."""
    text, key = json.dumps(EVIL), json.dumps("k" + EVIL)
    sgpu.write(
        "run.yaml",
        "name: train\ngpus: 1\ntype: CPU\nentrypoint: train.py:main\nmlflow: {enabled: false}\n"
        f"description: {text}\n"
        f"tags: {{{key}: {text}}}\n"
        f"args: {{one: {text}, two: {{{key}: {text}}}}}\n"
        f"env: {{variables: {{EVIL: {text}}}}}\n",
    )
    sgpu.write("train.py", "def main(one, two):\n    print(one)\n    return [one, two]\n")
    return sgpu


def harmless(text: str) -> bool:
    return OBEYED.search(text) is None


def test_no_command_hands_escapes_of_the_user_to_a_terminal(evil: Shell) -> None:
    for command in (
        ("validate",),
        ("plan",),
        ("plan", "-o", "markdown"),
        ("apply", "-y"),
        ("logs", "train"),
        ("status",),
        ("show", "train"),
        ("show", "train", "-o", "markdown"),
        ("results", "train"),
        ("state", "list"),
        ("state", "show", "train"),
        ("state", "pull"),
        ("plan", "--rerun", "nobody\x1b[2J\u202e"),
        ("destroy", "-y"),
        ("logs", "nobody\x1b[2J\u202e"),
        ("no-such\x1b[2J\u202e",),
    ):
        told = evil.here(*command)
        out = COLOURS.sub("", told.out) if command[0] in ("apply", "logs") else told.out
        assert harmless(out), (command, out)
        assert harmless(told.err), (command, told.err)


def test_json_that_is_shown_reads_back_as_what_it_is(evil: Shell) -> None:
    evil.done("apply", "-y")
    said = evil.here("results", "train").out
    assert json.loads(said.partition(": ")[2]) == [EVIL, {"k" + EVIL: EVIL}]
    spec = json.loads(evil.here("state", "show", "train").out)["spec"]
    assert spec["args"]["two"] == {"k" + EVIL: EVIL}
    assert spec["tags"] == {"k" + EVIL: EVIL}


def test_on_a_terminal_our_own_colours_are_all_that_is_obeyed(
    evil: Shell, at_terminal: AtTerminal
) -> None:
    with at_terminal("plan", environ={"NO_COLOR": "", "TERM": "xterm"}) as terminal:
        assert terminal.ended() == 0
    shown = terminal.all.replace("\r\n", "\n")
    assert OURS.search(shown)
    assert harmless(OURS.sub("", PROGRESS.sub("", shown)))


def test_a_command_shows_text_in_one_way_alone() -> None:
    """A second way would be one that nothing is made harmless on."""
    others = {
        "commands",
        "error_exit",
        "main",
        "terminal_output",
    }  # help, JSON in ASCII, and the way itself
    for path in Path(sgpu_decl.cli.__file__).parent.glob("*.py"):
        calls = {ast.unparse(item.func) for item in ast.walk(ast.parse(path.read_text()))
                 if isinstance(item, ast.Call)}  # fmt: skip
        assert path.stem in others or not calls & {"click.echo", "click.secho", "print"}, path
