"""Progress of environments: a bar on a terminal, lines now and then elsewhere."""

import os
import pty
import subprocess
import sys

import pytest

from sgpu_decl.cli.staging_progress import ProgressLines
from tests.support import PATIENCE

DRAWS = """
import time
from sgpu_decl.cli.staging_progress import open_progress
with open_progress() as progress:
    end = time.monotonic() + 0.6
    done = 0
    while time.monotonic() < end:
        done += 1000
        progress.advance("copying", done, 10_000_000)
print("after")
"""
PRINTS = """
import time
from sgpu_decl.cli.staging_progress import SharedProgress, open_progress
with open_progress() as progress:
    shared = SharedProgress(progress)
    end = time.monotonic() + 0.6
    while time.monotonic() < end:
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


def test_nothing_is_drawn_off_a_terminal() -> None:
    done = subprocess.run(
        [sys.executable, "-c", DRAWS], capture_output=True, text=True, timeout=PATIENCE, check=True
    )
    assert (done.stdout, done.stderr) == ("after\n", "")


def test_a_bar_is_drawn_on_a_terminal_and_gone_afterwards() -> None:
    drawn = drawn_by(DRAWS)
    assert b"copying the environment: " in drawn
    assert b"MB/s" not in drawn.split(b"copying")[0]
    assert drawn.rstrip().endswith(b"\x1b[2K") or b"\x1b[2K" in drawn  # erased


def test_a_line_takes_the_place_of_a_bar() -> None:
    before, _, _ = drawn_by(PRINTS).partition(b"a line\r\n")
    assert b"staging the code: " in before
    assert before.endswith(b"\x1b[2K")  # the bar was erased, and nothing was drawn since


def drawn_by(program: str) -> bytes:
    """What a program that prints `after` draws on its terminal."""
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-c", program],
        stderr=theirs,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "TERM": "xterm-256color", "COLUMNS": "100"},
    ) as process:
        os.close(theirs)
        drawn = b""
        try:
            while chunk := os.read(ours, 4096):
                drawn += chunk
        except OSError:  # the other side is closed
            pass
        assert process.stdout is not None
        assert process.stdout.read() == "after\n"
    os.close(ours)
    return drawn
