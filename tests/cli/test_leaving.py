"""Ctrl-C in commands that wait: 130, a message, and nothing that was begun is undone."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from sgpu_decl.cli.error_exit import as_sgpu_error
from tests.cli.conftest import Shell
from tests.support import PATIENCE

STUBBORN = """\
name: stubborn
gpus: 1
type: CPU
command: [sh, hold.sh]
mlflow: {enabled: false}
grace: 1h
"""
# It ignores being stopped, so that there is something to wait for until the test ends it.
HOLD = """\
trap '' TERM
echo up
while [ ! -e "$SGPU_PROJECT_DIR/end" ]; do sleep 0.05; done
exit 1
"""


@pytest.fixture
def stubborn(sgpu: Shell) -> Iterator[Shell]:
    sgpu.write("run.yaml", STUBBORN)
    sgpu.write("hold.sh", HOLD)
    try:
        with sgpu.start("apply", "-y") as process:
            assert process.stdout is not None
            assert "up\n" in iter(process.stdout.readline, "")
            process.send_signal(signal.SIGINT)
            process.communicate(timeout=PATIENCE)
        yield sgpu
    finally:
        sgpu.write("end", "")


def interrupted(sgpu: Shell, *arguments: str, after: str) -> tuple[str, str]:
    """Run a command, interrupt it once it said `after`; what it wrote."""
    with sgpu.start(*arguments) as process:
        said = ""
        for line in process.stderr:
            said += line
            if after in line:
                break
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 130, said + err
    assert "Traceback" not in said + err
    return out, said + err


def test_wait_is_left_and_the_run_goes_on(stubborn: Shell) -> None:
    _, said = interrupted(stubborn, "wait", "stubborn", after="waiting for stubborn#1")
    assert "error[interrupted]: interrupted\nhint: the runs continue: see `sgpu status`" in said
    out, _ = interrupted(stubborn, "wait", "stubborn", "-o", "json", after="waiting for")
    assert json.loads(out)["error"]["code"] == "interrupted"
    (run,) = stubborn("status", "-o", "json").json["data"]["runs"]
    assert run["state"] == "running"


@pytest.mark.expensive
@pytest.mark.parametrize("command", [["cancel", "stubborn"], ["destroy", "-y"]])
def test_what_is_being_stopped_goes_on_stopping(stubborn: Shell, command: list[str]) -> None:
    _, said = interrupted(stubborn, *command, after="stubborn#1 asked to stop")
    assert "error[interrupted]: left while runs are being stopped" in said
    assert "hint: they are still stopping" in said
    stubborn.write("end", "")
    if command[0] == "cancel":
        stubborn("wait", "stubborn")
        (run,) = stubborn("status", "-o", "json").json["data"]["runs"]
        assert run["state"] == "cancelled"


def test_the_hint_after_ctrl_c_names_target_and_project() -> None:
    for arguments, where in (
        (["wait", "a"], ""),
        (["wait", "a", "-t", "prod"], " -t prod"),
        (["wait", "-tprod", "a", "--project", "my folder"], " -t prod --project 'my folder'"),
        (["wait", "--target=prod", "--", "--project=x"], " -t prod"),
    ):
        hint = as_sgpu_error(KeyboardInterrupt(), arguments).hint
        assert hint == f"the runs continue: see `sgpu status{where}`"


def test_the_hint_after_ctrl_c_speaks_of_launches_only_where_there_can_be_one() -> None:
    hints = {name: as_sgpu_error(KeyboardInterrupt(), [name]).hint for name in ("apply", "plan")}
    assert hints == {
        "apply": "launched runs continue: see `sgpu status`",
        "plan": None,
    }


def test_ctrl_c_while_the_command_line_is_loaded_shows_no_traceback(tmp_path: Path) -> None:
    (tmp_path / "click.py").write_text("raise KeyboardInterrupt\n")
    done = subprocess.run(
        [sys.executable, "-m", "sgpu_decl", "status"],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        check=False,
    )
    assert (done.returncode, done.stderr) == (130, "error[interrupted]: interrupted\n")


def test_following_logs_is_left(stubborn: Shell) -> None:
    with stubborn.start("logs", "-f", "stubborn") as process:
        assert process.stdout.readline() == "up\n"
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 130
    assert "Traceback" not in err
