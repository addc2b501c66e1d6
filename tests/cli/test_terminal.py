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


MISTAKEN = "name: hello\ngpu: 1\ntype: CPU\nentrypoint: hello.py\n"
RED = "\x1b[31m"
COLOURED = {"NO_COLOR": ""}


@pytest.mark.parametrize(
    ("command", "code"), [("validate", "unknown_key"), ("apply", "unknown_key"), ("plan", "no_gpu")]
)
def test_the_code_and_the_caret_of_an_error_are_red(
    sgpu: Shell, at_terminal: AtTerminal, command: str, code: str
) -> None:
    sgpu.write("run.yaml", MISTAKEN if code == "unknown_key" else RUN.replace("CPU", "GPU"))
    sgpu.environ["CUDA_VISIBLE_DEVICES"] = ""
    with at_terminal(command, environ=COLOURED) as terminal:
        terminal.until(f"{RED}error[{code}]\x1b[0m: ")
        terminal.until(f"{RED}^\x1b[0m")
        terminal.until(f"{RED}error[")
        assert terminal.ended() == 1
    with at_terminal(command, environ={"NO_COLOR": "1"}) as terminal:
        assert terminal.ended() == 1
    assert f"error[{code}]: " in terminal.all
    assert f"{RED}error" not in terminal.all
    assert RED not in sgpu.here(command).err


def test_a_usage_error_is_red_too(sgpu: Shell, at_terminal: AtTerminal) -> None:
    with at_terminal("plan", "--nope", environ=COLOURED) as terminal:
        terminal.until(f"{RED}error[usage]\x1b[0m: no such option `--nope`")
        assert terminal.ended() == 64


def test_a_long_hint_breaks_between_words(sgpu: Shell, at_terminal: AtTerminal) -> None:
    sgpu.write("run.yaml", MISTAKEN.replace("gpu:", "zzz:"))
    whole = next(line for line in sgpu.here("validate").err.split("\n") if "known here" in line)
    with at_terminal("validate", width=60) as terminal:
        assert terminal.ended() == 1
    lines = terminal.all.replace("\r", "").split("\n")
    first = next(index for index, line in enumerate(lines) if "known here" in line)
    after = next(index for index in range(first + 1, len(lines)) if lines[index][:6].strip())
    shown = [line for line in lines[first:after] if line]
    assert max(map(len, shown)) <= 60
    assert " ".join(line.strip() for line in shown) == whole
