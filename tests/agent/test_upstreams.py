"""An attempt that comes after those of other runs (`after`)."""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from sgpu_decl.agent.attempt.attempt_status import request_cancel
from tests.agent.conftest import Attempt
from tests.agent.test_supervisor import BLOCK

Make = Callable[..., Attempt]
GATE = """\
import os, time
open(os.environ["SGPU_OUTPUT_DIR"] + "/up0", "w").close()
while not os.path.exists("gate"): time.sleep(0.01)
"""


ENTER = """\
import sys
from sgpu_decl.agent.host.attempt_queue import AttemptQueue
from sgpu_decl.agent.attempt.attempt_record import AttemptRecord
from sgpu_decl.agent.system.loop import Loop
spec = {"gpus": {"need": 0}, "parallel": None, "wait_for": [], "after": {"run0#1": sys.argv[1]}}
queue = AttemptQueue(spec, 1, Loop(print), AttemptRecord(sys.argv[1], 1, "queued"))
print("sgpu_decl.agent.attempt.attempt_status" in sys.modules)
queue.enter()
print("sgpu_decl.agent.attempt.attempt_status" in sys.modules)
queue.leave()
"""


def after(*upstreams: Attempt) -> dict[str, str]:
    return {f"run{at}#1": str(one.folder) for at, one in enumerate(upstreams)}


def test_ranks_start_once_the_upstream_has_succeeded(make_attempt: Make) -> None:
    first = make_attempt(GATE).launch()
    second = make_attempt("", after=after(first)).launch()
    second.until(lambda: second.read().get("waiting_for") == "run0#1")
    assert second.read()["state"] == "queued"
    first.until(lambda: first.up(0))
    (first.folder / "code" / "gate").touch()
    assert second.wait()["state"] == "succeeded"
    assert first.read()["ended_at"] <= second.read()["started_at"]


def stop(attempt: Attempt) -> None:
    request_cancel(attempt.folder)


def kill(attempt: Attempt) -> None:
    os.kill(attempt.supervisor, signal.SIGKILL)


def delete(attempt: Attempt) -> None:
    shutil.rmtree(attempt.folder)


@pytest.mark.parametrize(
    ("end", "words"),
    [(stop, "was cancelled"), (kill, "was lost"), (delete, "is gone")],
)
def test_an_upstream_that_does_not_succeed_ends_those_after_it(
    make_attempt: Make, end: Callable[[Attempt], None], words: str
) -> None:
    first = make_attempt(BLOCK).launch()
    first.until(lambda: first.up(0))
    second = make_attempt("", after=after(first)).launch()
    second.until(lambda: second.read().get("waiting_for") == "run0#1")
    end(first)
    ended = second.wait()
    assert (ended["state"], ended["class"], ended["exit_code"]) == ("failed", "upstream_failed", 1)
    assert ended["first_cause"]["summary"] == f"run0#1 {words}, and this run comes after it"
    assert ended["started_at"] is None


def test_the_first_of_several_that_fails_ends_the_wait(make_attempt: Make) -> None:
    failed, blocked = make_attempt("raise SystemExit(3)").launch(), make_attempt(BLOCK).launch()
    third = make_attempt("", after=after(failed, blocked)).launch()
    assert third.wait()["first_cause"]["summary"].startswith("run0#1 failed")
    assert blocked.read()["state"] in ("starting", "running")
    request_cancel(blocked.folder)


def test_an_attempt_that_waits_can_be_cancelled(make_attempt: Make) -> None:
    first = make_attempt(BLOCK).launch()
    second = make_attempt("", after=after(first)).launch()
    second.until(lambda: second.read().get("waiting_for") == "run0#1")
    request_cancel(second.folder)
    assert second.wait()["state"] == "cancelled"
    request_cancel(first.folder)


def test_what_judges_an_upstream_is_imported_before_the_wait(tmp_path: Path) -> None:
    """The package may be another one, or gone, when the wait ends."""
    told = subprocess.run(
        [sys.executable, "-c", ENTER, str(tmp_path)], capture_output=True, text=True, check=True
    )
    assert told.stdout.split() == ["False", "True"]
