"""What a person sees at a terminal while runs are followed."""

from pathlib import Path

import pytest

from tests.cli.conftest import AtTerminal, Shell

PROJECT = """\
project: {name: p}
runs:
  first: {gpus: 1, type: CPU, command: [sh, wait.sh, '0'], mlflow: {enabled: false}}
  second: {gpus: 1, type: CPU, command: [sh, wait.sh, '0'], mlflow: {enabled: false}}
  third-with-a-long-name:
    {gpus: 1, type: CPU, command: [sh, wait.sh, '3'], mlflow: {enabled: false}}
"""
# The colour and the width of a line are the rank's own matter.
WAIT = """\
printf '\\033[35mup\\033[0m %s\\n' "$SGPU_RUN_NAME: a line that is wider than a narrow window"
while [ ! -e "$SGPU_PROJECT_DIR/go" ]; do sleep 0.05; done
exit $1
"""


@pytest.fixture
def three(sgpu: Shell) -> Shell:
    sgpu.write("sgpu.yml", PROJECT)
    sgpu.write("wait.sh", WAIT)
    return sgpu


@pytest.mark.parametrize("width", [24, 80])
def test_several_runs_stand_under_their_lines_and_each_end_is_told_once(
    three: Shell, at_terminal: AtTerminal, width: int
) -> None:
    with at_terminal("apply", "-y", width=width) as terminal:
        terminal.until("3 running")
        below = terminal.screen(width)[-4:]
        three.write("go", "")
        assert terminal.ended() == 5
    names = ["first#1", "second#1", "third-with-a-long-name#1"]
    for name, line in zip(names, below, strict=False):
        assert line[:5] == name[:5]
        assert "running" in line
        assert len(line) <= width
    assert below[3] == "3 runs: 3 running"
    shown = "".join(line.ljust(width) for line in terminal.screen(width))
    for name, how in zip(names, ["succeeded", "succeeded", "failed"], strict=True):
        assert shown.count(f"{name} {how} after") == 1
        assert shown.count(f"{name} launched") == 1
        assert f"[{name[:-2]} 0] up {name[:-2]}: a line that is wider than a narrow" in shown
    assert "running" not in shown
    assert "3 runs: 2 succeeded, 1 failed" in shown
    assert "\x1b[35mup\x1b[0m" in terminal.all
    assert terminal.all.rindex("\x1b[?25h") > terminal.all.rindex("\x1b[?25l"), "a cursor is left"


@pytest.mark.expensive
def test_without_colour_only_the_ranks_have_theirs(three: Shell, at_terminal: AtTerminal) -> None:
    three.write("go", "")
    with at_terminal("apply", "-y") as terminal:
        terminal.ended()
    assert "\x1b[35mup" in terminal.all
    for colour in ("\x1b[31m", "\x1b[32m", "\x1b[36m"):
        assert colour not in terminal.all


def test_a_dumb_terminal_gets_plain_lines(three: Shell, at_terminal: AtTerminal) -> None:
    with at_terminal("apply", "-y", environ={"TERM": "dumb"}) as terminal:
        terminal.until("first#1 running")
        three.write("go", "")
        terminal.ended()
    assert "\x1b[2K" not in terminal.all
    assert terminal.all.count("first#1 succeeded") == 1


def test_lines_that_go_to_a_file_leave_no_region(
    three: Shell, at_terminal: AtTerminal, tmp_path: Path
) -> None:
    three.write("go", "")
    with (
        (tmp_path / "log").open("w") as log,
        at_terminal("apply", "-y", stdout=log) as terminal,
    ):
        terminal.ended()
    # Before that, a slow machine shows how far the launch is.
    assert "\x1b[2K" not in terminal.all[terminal.all.rindex(" launched") :]
    assert terminal.all.count("first#1 succeeded") == 1
    assert "\x1b[35mup\x1b[0m first" in (tmp_path / "log").read_text()


def test_a_single_run_has_one_line_under_what_it_writes(
    three: Shell, at_terminal: AtTerminal
) -> None:
    with at_terminal("apply", "-y", "--select", "first") as terminal:
        terminal.until("running")
        assert terminal.screen(80)[-1].split()[:2] == ["first#1", "running"]
        three.write("go", "")
        assert terminal.ended() == 0
    shown = "\n".join(terminal.screen(80))
    assert "\nup first: a line" in shown
    assert shown.count("first#1 succeeded after") == 1
    assert "running" not in shown


def test_leaving_takes_the_region_away_and_says_that_the_run_goes_on(
    three: Shell, at_terminal: AtTerminal
) -> None:
    with at_terminal("apply", "-y") as terminal:
        terminal.until("3 running")
        terminal.type("\x03")
        terminal.until("press again to cancel")
        terminal.type("\x03")
        terminal.until("cancelling")
        terminal.type("\x03")
        assert terminal.ended() == 130
    shown = "\n".join(terminal.screen(80))
    assert "detached: the run goes on" in shown
    assert "running" not in shown.partition("detached")[2]
