"""A person at a terminal: being asked, and Ctrl-C while a run is followed."""

import pytest

from tests.cli.conftest import AtTerminal, Shell
from tests.cli.test_commands import SLEEPING as RUN


def test_anything_but_yes_changes_nothing(sgpu: Shell, at_terminal: AtTerminal) -> None:
    sgpu.write("run.yaml", RUN)
    with at_terminal("apply") as terminal:
        terminal.until("Type `yes` to approve")
        terminal.type("y\n")
        terminal.until("nothing was changed")
        assert terminal.ended() == 1
    assert not (sgpu.folder / ".sgpu").exists()


def test_ctrl_c_at_the_question_is_130(sgpu: Shell, at_terminal: AtTerminal) -> None:
    sgpu.write("run.yaml", RUN)
    with at_terminal("apply") as terminal:
        terminal.until("Type `yes` to approve")
        assert terminal.press_until_ended() == 130
    assert not (sgpu.folder / ".sgpu").exists()


def test_two_presses_cancel_the_run_and_wait_for_it(sgpu: Shell, at_terminal: AtTerminal) -> None:
    sgpu.write("run.yaml", RUN)
    with at_terminal("apply") as terminal:
        terminal.until("Type `yes` to approve")
        terminal.type("yes\n")
        terminal.until("liftoff")
        terminal.type("\x03")
        terminal.until("detaching in 5 s, press again to cancel the run")
        terminal.type("\x03")
        terminal.until("sleepy#1 cancelled")
        assert terminal.ended() == 130
    (run,) = sgpu("status", "-o", "json").json["data"]["runs"]
    assert run["state"] == "cancelled"


@pytest.mark.expensive
def test_replacing_an_active_run_takes_its_name(sgpu: Shell, at_terminal: AtTerminal) -> None:
    sgpu.write("run.yaml", RUN)
    assert sgpu("apply", "-y", "--detach").code == 0
    options = ("--set", "gpus=2", "--on-active", "replace", "-y", "--detach")
    with at_terminal("apply", *options) as terminal:
        terminal.until("Type its name to go on")
        terminal.type("sleep\n")
        terminal.until("nothing was changed")
        assert terminal.ended() == 1
    with at_terminal("apply", *options) as terminal:
        terminal.until("Type its name to go on")
        terminal.type("sleepy\n")
        assert terminal.ended() == 0
    (run,) = sgpu("status", "-o", "json").json["data"]["runs"]
    assert run["attempt"] == 2
