"""`sgpu top` and `sgpu status -w`, as a person at a terminal and a script use them."""

import fcntl
import os
import re
import signal
import struct
import sys
import termios

import pytest

from sgpu_decl.api import Location, Session
from tests.cli.conftest import AtTerminal, Shell, Terminal
from tests.support import until

RUN = """\
name: train
gpus: 4
type: CPU
entrypoint: train.py:main
timeout: 6h
grace: 500ms
mlflow: {enabled: false}
"""
TRAIN = """\
import os, sys, time
from sgpu_decl.runtime import report_progress
def main():
    rank = os.environ["RANK"]
    print("rank", rank, "is up")
    print("a bar\\r1 of 9\\rbar of rank " + rank, end="", flush=True, file=sys.stderr)
    report_progress(120, 300, loss=1.5)
    while not os.path.exists(os.environ["SGPU_PROJECT_DIR"] + "/go"):
        time.sleep(0.05)
"""
UP, DOWN = "\x1b[A", "\x1b[B"


@pytest.fixture
def running(sgpu: Shell) -> Shell:
    """A run of four ranks whose progress is known."""
    sgpu.write("run.yaml", RUN)
    sgpu.write("train.py", TRAIN)
    sgpu.done("apply", "-y", "--detach")
    until(lambda: all(seen(sgpu, "step", "cpu")))
    return sgpu


def seen(sgpu: Shell, *keys: str) -> list[bool]:
    """Of each rank, whether all of these are known."""
    (run,) = sgpu.data("top", "train")["runs"]
    return [all(one[key] is not None for key in keys) for one in run["activity"]["ranks"]]


def screen(terminal: Terminal) -> list[str]:
    """The lines that stand on the screen now. Each frame draws all of it."""
    rows: dict[int, list[str]] = {}
    row = column = 0
    for code, text in re.findall(r"\x1b\[([?0-9;]*[A-Za-z])|([^\x1b])", terminal.all):
        if code in ("?1049h", "?1049l"):
            rows.clear()
        elif code.endswith("H"):
            row, column = (int(number) - 1 for number in (code[:-1] or "1;1").split(";"))
            if column == 0:
                rows[row] = []
        elif text >= " ":
            rows.setdefault(row, []).append(text)
            column += 1
    return ["".join(rows[number]).rstrip() for number in sorted(rows)]


def resize(terminal: Terminal, width: int, height: int) -> None:
    fcntl.ioctl(terminal.controller, termios.TIOCSWINSZ, struct.pack("HHHH", height, width, 0, 0))


def test_keys_choose_a_rank_and_its_log_and_q_leaves_the_terminal_as_it_was(
    running: Shell, at_terminal: AtTerminal
) -> None:
    with at_terminal("top", "train") as terminal:
        before = terminal.settings()
        terminal.until("log of rank 0")
        terminal.until("q: leave")
        shown = screen(terminal)
        assert len(shown) == 24
        assert max(map(len, shown)) <= 80
        assert shown[0].startswith("train#1  running")
        assert "step 120 of 300, 40 %, loss 1.5" in shown[1]
        assert "limit 6 h, 5 h 59 m of it left" in shown[2]
        assert shown[4].startswith(">    0  running   120  ")
        assert "bar of rank 0" in shown[4]
        assert shown[9:11] == ["rank 0 is up", "bar of rank 0"]
        terminal.type("j" + DOWN)
        terminal.until("log of rank 2")
        terminal.until("q: leave")
        assert "bar of rank 2" in screen(terminal)
        terminal.type("k")
        terminal.until("log of rank 1")
        terminal.type("G" + DOWN)
        terminal.until("log of rank 3")
        assert not terminal.settings()[3] & termios.ICANON
        terminal.type("q")
        assert terminal.ended() == 0
        assert terminal.settings() == before
    assert terminal.all.rindex("\x1b[?1049l") > terminal.all.rindex("\x1b[?1049h")
    assert terminal.all.rindex("\x1b[?25h") > terminal.all.rindex("\x1b[?25l")
    assert running.done("status", "-o", "json").json["data"]["runs"][0]["state"] == "running"


def test_a_larger_terminal_is_filled_and_one_that_is_too_small_says_so(
    running: Shell, at_terminal: AtTerminal
) -> None:
    with at_terminal("top", "train") as terminal:
        terminal.until("q: leave")
        resize(terminal, 100, 40)
        terminal.until("\x1b[40;1H")
        terminal.until("q: leave")
        assert len(screen(terminal)) == 40
        resize(terminal, 30, 8)
        terminal.until("the terminal has 30 columns")
        resize(terminal, 80, 24)
        terminal.until("q: leave")
        terminal.type("q")
        assert terminal.ended() == 0


@pytest.mark.parametrize("how", ["ctrl-c", "sigterm"])
def test_whoever_is_interrupted_leaves_the_terminal_as_it_was(
    running: Shell, at_terminal: AtTerminal, how: str
) -> None:
    with at_terminal("top", "train") as terminal:
        before = terminal.settings()
        terminal.until("q: leave")
        if how == "ctrl-c":
            terminal.type("\x03")
        else:
            os.kill(terminal.pid, signal.SIGTERM)
        assert terminal.ended() == 130
        assert terminal.settings() == before
    assert terminal.all.rindex("\x1b[?1049l") > terminal.all.rindex("\x1b[?1049h")
    assert "\x1b[?25h" in terminal.all[terminal.all.rindex("\x1b[?25l") :]
    assert "interrupted" in terminal.all
    assert "Traceback" not in terminal.all


def test_ctrl_z_gives_the_terminal_back_until_the_program_goes_on(
    running: Shell, at_terminal: AtTerminal
) -> None:
    top = f"{sys.executable} -m sgpu_decl top train"
    with at_terminal(program=("bash", "-mc", f"{top}; echo it has stopped; fg")) as terminal:
        terminal.until("q: leave")
        terminal.type("\x1a")
        terminal.until("\x1b[?25h\x1b[?1049l")
        terminal.until("it has stopped")
        terminal.until("\x1b[?1049h")
        terminal.until("q: leave")
        terminal.type("q")
        assert terminal.ended() == 0
    assert "\x1b[?25h" in terminal.all[terminal.all.rindex("\x1b[?25l") :]


def test_all_runs_have_a_row_and_enter_opens_one(running: Shell, at_terminal: AtTerminal) -> None:
    running.write("other.yaml", RUN.replace("name: train", "name: other").replace("4", "1"))
    running.done("apply", "other.yaml", "-y", "--detach")
    with at_terminal("top") as terminal:
        terminal.until("log of other#1")
        terminal.until("q: leave")
        shown = screen(terminal)
        assert shown[0] == "2 runs: 2 running"
        assert shown[2].startswith("> other#1  running")
        assert shown[3].startswith("  train#1  running")
        assert "step 120 of 300" in shown[3]
        terminal.type("j")
        terminal.until("log of train#1")
        terminal.type("\r")
        terminal.until("esc: all runs")
        assert screen(terminal)[0].startswith("train#1  running")
        terminal.type("j\x1b")
        terminal.until("enter: its ranks")
        terminal.type("\r")
        terminal.until("log of rank 1")  # it was chosen before
        terminal.type("q")
        assert terminal.ended() == 0


def test_a_frame_as_text_and_as_json(running: Shell) -> None:
    shown = running.done("top", "train", "--once").out.split("\n")
    assert shown[0].startswith("train#1  running")
    assert [line.split()[:3] for line in shown[4:8]] == [
        [str(rank), "running", "120"] for rank in range(4)
    ]
    assert "\x1b" not in "".join(shown)
    (run,) = running.data("top", "train")["runs"]
    assert (run["address"], run["state"], run["progress"]["percent"]) == (
        "run.train", "running", 40.0,
    )  # fmt: skip
    activity = run["activity"]
    assert (activity["gpus"], activity["gpu_hours"], activity["limit_seconds"]) == (0, 0.0, 21600.0)
    assert [one["last_line"] for one in activity["ranks"]] == [
        f"bar of rank {rank}" for rank in range(4)
    ]
    assert running.data("top")["runs"][0]["address"] == "run.train"


def test_runs_that_start_later_get_a_row(running: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    from sgpu_decl.cli import top

    monkeypatch.setattr(top, "_SEARCHED", 0.0)
    with Session.open(Location(project=running.folder)) as session:
        board = top.Board(session, session.runs.active(), searches=True)
        board.look()
        assert [str(run.view.ref) for run in board.runs] == ["train#1"]
        running.write("other.yaml", RUN.replace("name: train", "name: other").replace("4", "1"))
        running.done("apply", "other.yaml", "-y", "--detach")
        board.look()
        assert [str(run.view.ref) for run in board.runs] == ["train#1", "other#1"]
        board.press("down", 80, 24)
        board.press("down", 80, 24)  # there is no third one
        board.press("enter", 80, 24)
        assert board.frame(80, 24)[0].plain.startswith("other#1  ")


def test_values_of_secrets_are_not_shown(sgpu: Shell, at_terminal: AtTerminal) -> None:
    sgpu.environ["WORD"] = "the-word-of-ann"
    sgpu.write("run.yaml", RUN.replace("gpus: 4", "gpus: 1") + "env: {secrets: {WORD: env:WORD}}\n")
    sgpu.write("train.py", TRAIN.replace('"is up")', '"has", os.environ["WORD"], file=sys.stderr)'))
    sgpu.done("apply", "-y", "--detach")
    until(lambda: "bar of" in sgpu.done("top", "train", "--once").out)
    with at_terminal("top", "train") as terminal:
        terminal.until("rank 0 has ***")
        terminal.type("q")
        assert terminal.ended() == 0
    assert "the-word-of-ann" not in terminal.all + sgpu.done("top", "-o", "json").out
    del sgpu.environ["WORD"]
    assert "warning: `env:WORD` cannot be resolved" in sgpu.done("top", "--once").err


def test_the_end_of_a_run_stays_on_the_screen(running: Shell, at_terminal: AtTerminal) -> None:
    with at_terminal("top", "train") as terminal:
        terminal.until("q: leave")
        running.write("go", "")
        terminal.until("succeeded")
        terminal.type("q")
        assert terminal.ended() == 0
    shown = running.done("top", "train", "--once").out
    assert "train#1  succeeded" in shown
    assert "no run is active" in running.done("top", "--once").out


def test_status_is_drawn_again_until_all_runs_have_ended(
    running: Shell, at_terminal: AtTerminal
) -> None:
    with at_terminal("status", "-w") as terminal:
        terminal.until("step 120 of 300")
        terminal.until("step 120 of 300")  # once more
        running.write("go", "")
        terminal.until("succeeded")
        assert terminal.ended() == 0
    assert "succeeded" in "\n".join(terminal.screen(80)[-3:])
    assert "running" not in "\n".join(terminal.screen(80)[-3:])
    with at_terminal("status", "-w") as terminal:  # there is nothing to wait for
        assert terminal.ended() == 0


def test_what_cannot_be_shown_is_refused(sgpu: Shell, at_terminal: AtTerminal) -> None:
    sgpu.write("run.yaml", RUN.replace("entrypoint: train.py:main", "command: ['true']"))
    assert "no run is active" in sgpu.here("top", "--project", ".").out
    assert sgpu.refusal("top", "nothing", "--project", ".")[0] == 1
    sgpu.done("apply", "-y")
    assert "no run matches `nothing`" in sgpu.exits(1, "top", "nothing").err
    off = sgpu.exits(64, "top", "train")
    assert "not a terminal" in off.err
    assert "hint: `--once` prints one frame" in off.err
    assert "hint: `sgpu wait NAME`" in sgpu.exits(64, "status", "-w").err
    assert sgpu.exits(64, "status", "-w", "-o", "json").json["error"]["code"] == "usage"
    with at_terminal("top", "train", width=30) as terminal:
        assert terminal.ended() == 64
    assert "has 30 columns and 24\r\n" in terminal.all
    assert "\x1b[?1049h" not in terminal.all
    with at_terminal("top", "train", environ={"TERM": "dumb"}) as terminal:
        assert terminal.ended() == 64


@pytest.mark.parametrize(
    ("typed", "keys", "rest"),
    [
        ("jk", ["down", "up"], ""),
        ("\x1b[A\x1bOBq", ["up", "down", "quit"], ""),
        ("x\x1b[5~j", [None, None, "down"], ""),
        ("\x1b", [], "\x1b"),
        ("\x1b[", [], "\x1b["),
        ("\x1b[1;5", [], "\x1b[1;5"),
        ("\x1bj", ["escape", "down"], ""),
        ("\r\x7fG", ["enter", "escape", "last"], ""),
    ],
)
def test_keys_are_told_apart(typed: str, keys: list[str | None], rest: str) -> None:
    from sgpu_decl.cli.full_screen import next_key

    found = []
    while typed:
        key, after = next_key(typed)
        if after == typed:
            break
        found.append(key)
        typed = after
    assert (found, typed) == (keys, rest)
