"""Streams that take nothing: one clear line where one can be read, exit 1, never a traceback."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import Shell
from tests.support import PATIENCE

FULL = "error[system]: the answer cannot be written to stdout: no space left on device\nhint: "
CLOSED = "error[system]: cannot write output: stdout is closed\nhint: "
COMMANDS = (["status"], ["status", "-o", "json"], ["plan", "--help"], ["plna", "-o", "json"])


def shell(sgpu: Shell, line: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run `exec sgpu … LINE`, with Python's streams buffered as they are by default."""
    environ = {k: v for k, v in sgpu.environ.items() if k != "PYTHONUNBUFFERED"}
    return subprocess.run(
        ["sh", "-c", f'exec "$@" {line}', "sh", sys.executable, "-m", "sgpu_decl", *arguments],
        cwd=sgpu.folder, env=environ, stdin=subprocess.DEVNULL, capture_output=True, text=True,
        check=False,
    )  # fmt: skip


@pytest.mark.parametrize("arguments", COMMANDS, ids=" ".join)
@pytest.mark.parametrize(("line", "words"), [(">/dev/full", FULL), (">&-", CLOSED)])
def test_an_answer_that_cannot_be_written_is_told(
    sgpu: Shell, arguments: list[str], line: str, words: str
) -> None:
    done = shell(sgpu, line, *arguments)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith(words)
    assert done.stderr.count("\n") == 2


@pytest.mark.parametrize("line", [">/dev/full 2>/dev/full", ">&- 2>&-", "<&- >&- 2>&-"])
def test_where_nothing_can_be_written_the_exit_code_tells(sgpu: Shell, line: str) -> None:
    done = shell(sgpu, line, "status")
    assert (done.returncode, done.stdout, done.stderr) == (1, "", "")


@pytest.mark.parametrize("line", ["2>&-", "<&- 2>&-"])
def test_without_stderr_the_answer_is_given_as_ever(sgpu: Shell, line: str) -> None:
    assert shell(sgpu, line, "status").stdout.startswith("no project in ")
    assert shell(sgpu, line, "plna", "-o", "json").stdout.startswith('{"v": 1, "error"')
    refused = shell(sgpu, line, "plna")
    assert (refused.returncode, refused.stdout, refused.stderr) == (64, "", "")


def test_without_streams_nothing_is_written_into_the_state(sgpu: Shell) -> None:
    sgpu.write(
        "run.yaml",
        "name: hello\ngpus: 1\ntype: CPU\ncommand: ['true']\nmlflow: {enabled: false}\n",
    )
    assert shell(sgpu, "<&- 2>&-", "apply", "-y", "-o", "json").returncode == 0
    assert "hello#1" in sgpu("status").out


def test_a_reader_that_has_gone_is_no_error(sgpu: Shell) -> None:
    read, write = os.pipe()
    os.close(read)
    with sgpu.start("explain", "run", stdout=write) as process:
        os.close(write)
        _, err = process.communicate(timeout=PATIENCE)
    assert (process.returncode, err) == (1, "")


def test_no_crash_is_kept_of_it(sgpu: Shell) -> None:
    shell(sgpu, ">/dev/full", "status")
    shell(sgpu, ">&-", "status")
    assert not list(Path(sgpu.environ["XDG_STATE_HOME"]).rglob("sgpu-crash-*"))
