"""The output of ranks on the stdout of their node."""

import os
from pathlib import Path

import pytest

from sgpu_decl.agent.node.log_forwarding import Echo
from sgpu_decl.agent.node.platform import PlatformTable


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "ranks/3/0/stdout.log"
    path.parent.mkdir(parents=True)
    return path


def echoed(folder: Path, capfd: pytest.CaptureFixture[str], hide: str = "secret") -> str:
    echo = Echo(str(folder), lambda text: text.replace(hide, "***"), PlatformTable())
    while echo.turn():
        pass
    echo.finish()
    return capfd.readouterr().out


def test_lines_come_whole_with_their_rank_and_without_secrets(
    log: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    log.write_bytes(b"one\n\na secret\nno end")
    said = "[rank 3] one\n[rank 3] \n[rank 3] a ***\n[rank 3] no end\n"
    assert echoed(tmp_path, capfd) == said


def test_behind_what_the_bound_of_a_log_took_the_next_whole_line_comes(
    log: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    hole = 8192
    with log.open("wb") as file:
        os.truncate(file.fileno(), hole)
        os.pwrite(file.fileno(), b"a torn line\nwhole\n", hole)
    assert echoed(tmp_path, capfd) == (
        f"[rank 3] sgpu: {hole + 12} bytes of older output were dropped: the log had grown too "
        "long\n[rank 3] whole\n"
    )


def test_a_fifo_that_a_rank_puts_in_the_place_of_its_log_is_not_waited_for(
    log: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    os.mkfifo(log)
    kept = os.open(log, os.O_RDWR)  # whoever opens it meanwhile does not wait
    (tmp_path / "agent.log").write_text("sgpu: started\n")
    assert echoed(tmp_path, capfd) == "sgpu: started\n"
    os.close(kept)
