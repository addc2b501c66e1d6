"""Progress of environments: a bar on a terminal, lines now and then elsewhere."""

import os
import pty
import subprocess
import sys
import threading

import pytest

from sgpu_decl.cli.progress import ProgressLines, open_progress
from tests.support import PATIENCE

# A step that goes on until the test has seen enough of it, and closes the input.
GOES_ON = """
import select, sys
def is_going_on():
    return not select.select([sys.stdin], [], [], 0)[0]
"""
DRAWS = f"""{GOES_ON}
from sgpu_decl.cli.progress import open_progress
with open_progress() as progress:
    done = 0
    while is_going_on():
        done += 1000
        progress.advance("copying", done, 10_000_000)
print("after")
"""
PRINTS = f"""{GOES_ON}
from sgpu_decl.cli.progress import SharedProgress, open_progress
with open_progress() as progress:
    shared = SharedProgress(progress)
    while is_going_on():
        shared.advance("staging", 1, 10)
    shared.note("a line")
    shared.advance("staging", 2, 10)
print("after")
"""


def test_lines_come_only_when_it_takes_long(capsys: pytest.CaptureFixture[str]) -> None:
    quick, slow = ProgressLines(every=3600), ProgressLines(every=0)
    quick.advance("copying", 1, 2)
    assert capsys.readouterr().err == ""
    slow.advance("copying", 1000, 2000)
    slow.advance("linking", 5, 10)
    assert capsys.readouterr().err.splitlines() == [
        "copying the environment: 1.0 kB of 2.0 kB",
        "linking the environment: 5 B of 10 B",
    ]


def test_the_phases_of_code_count_files_or_bytes(capsys: pytest.CaptureFixture[str]) -> None:
    lines = ProgressLines(every=0)
    lines.advance("hashing", 1200, 14000)
    lines.advance("storing", 3_000_000, 20_000_000)
    lines.advance("staging", 0, 1_500_000_000)
    assert capsys.readouterr().err.splitlines() == [
        "hashing the code: 1,200 of 14,000 files",
        "storing the code: 3.0 MB of 20.0 MB",
        "staging the code: 0 B of 1.5 GB",
    ]


def test_no_bar_is_drawn_off_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    with open_progress() as progress:
        assert isinstance(progress, ProgressLines)
        progress.advance("copying", 1000, 10_000_000)
    assert capsys.readouterr() == ("", "")


def test_a_bar_is_drawn_on_a_terminal_and_gone_afterwards() -> None:
    drawn = drawn_by(DRAWS, until=b"copying the environment: ")
    assert b"MB/s" not in drawn.split(b"copying")[0]
    assert drawn.endswith(b"\x1b[2K")  # erased


def test_a_line_takes_the_place_of_a_bar() -> None:
    before, line, _ = drawn_by(PRINTS, until=b"staging the code: ").partition(b"a line\r\n")
    assert line
    assert before.endswith(b"\x1b[2K")  # the bar was erased, and nothing was drawn since


def drawn_by(program: str, *, until: bytes) -> bytes:
    """What a program that prints `after` draws on its terminal; its input is closed when it has
    drawn `until`."""
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-c", program],
        stderr=theirs,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "TERM": "xterm-256color", "COLUMNS": "100"},
    ) as process:
        os.close(theirs)
        assert process.stdin is not None
        assert process.stdout is not None
        late = threading.Timer(PATIENCE, process.kill)
        late.start()
        drawn = b""
        try:
            while chunk := os.read(ours, 4096):
                drawn += chunk
                if until in drawn:
                    process.stdin.close()
        except OSError:  # the other side is closed
            pass
        late.cancel()
        assert process.stdout.read() == "after\n"
    os.close(ours)
    return drawn
