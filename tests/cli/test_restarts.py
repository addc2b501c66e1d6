"""What is told of ranks that are started again: while they wait, when they start, and after."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.cli.conftest import Shell
from tests.support import until

RETRYING = """\
name: again
gpus: 2
type: CPU
entrypoint: train.py:main
mlflow: {enabled: false}
grace: 500ms
retry: {max: 2, on: [error], backoff: BACKOFF}
"""
FAILS_ONCE = """\
import os

def main():
    if os.environ["TORCHELASTIC_RESTART_COUNT"] == "0" and os.environ["RANK"] == "1":
        raise ValueError("no such luck")
"""


@pytest.fixture
def retrying(sgpu: Shell) -> Callable[..., Shell]:
    def write(backoff: str, program: str = FAILS_ONCE) -> Shell:
        sgpu.write("run.yaml", RETRYING.replace("BACKOFF", backoff))
        sgpu.write("train.py", program)
        return sgpu

    return write


def described(sgpu: Shell) -> dict[str, Any]:
    (run,) = sgpu.data("status", "again")["runs"]
    return run


def test_a_restart_is_told_by_apply_status_show_and_history(retrying: Callable[..., Shell]) -> None:
    sgpu = retrying("0s")
    applied = sgpu.done("apply", "-y")
    assert "again#1 restarted (restart 1): rank 1: ValueError: no such luck\n" in applied.err
    assert ", 1 restart\n" in applied.err

    assert sgpu.here("status").out.splitlines()[1].endswith("  1 restart")
    shown = sgpu.here("show", "again").out
    assert "\nrestarts:\n  1: " in shown
    assert ", after rank 1: ValueError: no such luck (exception)\n" in shown
    assert shown.splitlines()[-1].endswith(", 1 restart; reason: first run")
    markdown = sgpu.here("show", "again", "-o", "markdown").out
    assert "after rank 1: ValueError: no such luck (exception)" in markdown

    whole = sgpu.data("show", "again")
    (restart,) = whole["restarts"]
    assert (whole["restart"], whole["history"][0]["restart"]) == (1, 1)
    assert {name: restart[name] for name in ("restart", "rank", "class", "summary")} == {
        "restart": 1,
        "rank": 1,
        "class": "exception",
        "summary": "ValueError: no such luck",
    }
    assert restart["at"] <= restart["starts_at"]


def test_the_backoff_is_told_while_it_is_waited_for(retrying: Callable[..., Shell]) -> None:
    sgpu = retrying("90m")
    with sgpu.start("apply", "-y") as apply:
        try:
            line = next(line for line in apply.stderr if "restarts in" in line)
            assert line.startswith("again#1 restarts in ")
            assert line.endswith("(restart 1): rank 1: ValueError: no such luck\n")
            run = described(sgpu)
            assert (run["state"], run["waiting_for"], run["restart"]) == ("starting", "backoff", 1)
            row = sgpu.here("status").out.splitlines()[1]
            assert "  restart 1 in 1 h " in row
            assert row.endswith("; rank 1: ValueError: no such luck")
            shown = sgpu.here("show", "again").out
            assert "\n  again#1 starting, 1 restart\n" in shown
            assert "\nrestarts:\n  1: in 1 h " in shown
            sgpu.done("cancel", "again")
        finally:
            apply.kill()
    run = described(sgpu)
    assert (run["state"], "waiting_for" in run) == ("cancelled", False)


def test_a_run_that_waits_says_for_what(retrying: Callable[..., Shell]) -> None:
    sgpu = retrying("0s", "import time\n\ndef main():\n    time.sleep(300)\n")
    sgpu.done("apply", "-y", "--detach")
    options = ("--set", "gpus=1", "--on-active", "queue")
    sgpu.done("apply", "-y", "--detach", *options)
    until(lambda: described(sgpu)["state"] == "queued")
    assert "  waits for earlier attempts to end\n" in sgpu.here("status").out


def test_a_restart_that_there_was_not_has_no_logs(retrying: Callable[..., Shell]) -> None:
    sgpu = retrying("0s")
    sgpu.done("apply", "-y")
    for restart in ("0", "1"):
        sgpu.done("logs", "again", "--restart", restart)
    refused = sgpu.exits(1, "logs", "again", "--restart", "2")
    assert "there is no restart 2: the newest is 1" in refused.err
