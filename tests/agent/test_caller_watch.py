"""Attempts that are tied to a process: they end with it, whatever they were doing."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from sgpu_decl.agent.attempt.attempt_status import request_cancel
from sgpu_decl.agent.system.processes import start_time
from sgpu_decl.rendering.spec import RetrySpec, Tether, Warm

Make = Callable[..., Any]
CALLER = """
import sys
from pathlib import Path
from sgpu_decl.agent.launching.agent_launch import launch
launch(Path(sys.stdin.readline().strip()), secrets={})
sys.stdin.read()
"""


class Caller:
    """A process that launches an attempt when it is told to, and then waits to be killed."""

    def __init__(self) -> None:
        self.process = subprocess.Popen([sys.executable, "-c", CALLER], stdin=subprocess.PIPE)
        started = start_time(self.process.pid)
        assert started is not None
        self.tether = Tether(pid=self.process.pid, start=started)

    def launch(self, attempt: Any) -> Any:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{attempt.folder}\n".encode())
        self.process.stdin.flush()
        attempt.until(lambda: attempt.read()["state"] != "staging")
        return attempt

    def kill(self, number: int = signal.SIGKILL) -> None:
        """End it, and leave it a zombie: whoever started it may be slow to look."""
        os.kill(self.process.pid, number)


@pytest.fixture
def caller() -> Iterator[Caller]:
    made = Caller()
    yield made
    made.process.kill()
    made.process.communicate()


def ends_with_it(attempt: Any, caller: Caller) -> None:
    status = attempt.wait()
    assert (status["state"], status["exit_code"], status["class"]) == ("cancelled", 130, None)
    assert status["first_cause"] == {
        "rank": None,
        "class": None,
        "kind": None,
        "summary": f"the process that called it has ended (pid {caller.tether.pid})",
        "traceback": None,
        "simultaneous": [],
    }
    assert [event["pid"] for event in attempt.events("caller_gone")] == [caller.tether.pid]
    attempt.until_gone()
    attempt.check()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_running_attempt_ends_with_its_caller(
    make_faulty: Make, caller: Caller, number: int
) -> None:
    attempt = caller.launch(make_faulty("block()", tether=caller.tether)).until_up()
    caller.kill(number)
    ends_with_it(attempt, caller)
    stops = [event["reason"] for event in attempt.events("state") if "reason" in event]
    assert stops == ["caller_gone"]


def test_ranks_that_ignore_term_end_with_their_caller(make_faulty: Make, caller: Caller) -> None:
    attempt = caller.launch(make_faulty("stubborn()", tether=caller.tether)).until_up()
    caller.kill()
    ends_with_it(attempt, caller)


def test_an_attempt_that_waits_for_room_ends_with_its_caller(
    make_queued: Make, caller: Caller
) -> None:
    attempt, turn = make_queued("block()", tether=caller.tether)
    caller.kill()
    ends_with_it(attempt, caller)
    os.close(turn)
    assert not (attempt.folder / "ranks").exists()


def test_an_attempt_that_waits_for_another_ends_with_its_caller(
    make_faulty: Make, caller: Caller
) -> None:
    earlier = make_faulty("block()").launch().until_up()
    wait_for = (str(earlier.folder),)
    attempt = make_faulty("", tether=caller.tether, wait_for=wait_for).launch()
    attempt.until(lambda: attempt.read().get("waiting_for") == "earlier attempts")
    caller.kill()
    ends_with_it(attempt, caller)
    assert earlier.read()["state"] == "running"
    request_cancel(earlier.folder)
    earlier.wait()


def test_an_attempt_whose_ranks_are_starting_ends_with_its_caller(
    make_attempt: Make, caller: Caller
) -> None:
    attempt = make_attempt(tether=caller.tether, python="/bin/cat")
    (attempt.folder / "_air.py").unlink()
    os.mkfifo(attempt.folder / "_air.py")  # cat stands in for an interpreter that never gets going
    attempt.launch().until(lambda: len(attempt.events("rank_started")) == 2)
    assert attempt.read()["state"] == "starting"
    caller.kill()
    ends_with_it(attempt, caller)


def test_an_attempt_whose_warm_parent_imports_ends_with_its_caller(
    make_faulty: Make, caller: Caller, tmp_path: Any
) -> None:
    os.mkfifo(tmp_path / "never")
    (tmp_path / "stuck.py").write_text(f"open({str(tmp_path / 'never')!r})")
    env = {"PYTHONPATH": str(tmp_path)}
    warm = Warm(imports=(("stuck", ()),))
    attempt = make_faulty("block()", tether=caller.tether, warm=warm, env=env)
    attempt.launch().until(lambda: attempt.events("warm_started"))
    caller.kill()
    ends_with_it(attempt, caller)


def test_an_attempt_that_is_about_to_start_again_ends_with_its_caller(
    make_faulty: Make, caller: Caller
) -> None:
    retry = RetrySpec(max=1, on=("error",), backoff=600.0)
    attempt = make_faulty("sys.exit(3)", tether=caller.tether, retry=retry).launch()
    attempt.until(lambda: attempt.events("restart"))
    caller.kill()
    ends_with_it(attempt, caller)


def test_a_failure_that_is_cleared_up_when_the_caller_ends_is_not_tried_again(
    make_faulty: Make, caller: Caller
) -> None:
    source = "await_file(out + '/up1') or sys.exit(3) if rank == 0 else stubborn()"
    retry = RetrySpec(max=3, on=("error",), backoff=0.01)
    attempt = make_faulty(source, tether=caller.tether, retry=retry, grace=600.0).launch()
    attempt.until(lambda: attempt.read()["state"] == "stopping")
    caller.kill()
    attempt.until(lambda: attempt.events("caller_gone"))
    os.kill(attempt.rank_pid(1), signal.SIGKILL)
    ends_with_it(attempt, caller)
    assert not attempt.events("restart")


def test_a_caller_that_ended_before_the_supervisor_began_is_seen(
    make_faulty: Make, caller: Caller
) -> None:
    attempt = make_faulty("block()", tether=caller.tether)
    caller.process.kill()
    caller.process.wait()
    attempt.launch()
    ends_with_it(attempt, caller)
    assert not (attempt.folder / "ranks").exists()


def test_another_process_of_the_callers_number_does_not_count(
    make_faulty: Make, caller: Caller
) -> None:
    tether = Tether(pid=caller.tether.pid, start=caller.tether.start - 1)
    ends_with_it(make_faulty("block()", tether=tether).launch(), caller)


def test_an_attempt_whose_caller_lives_is_left_alone(make_faulty: Make, caller: Caller) -> None:
    attempt = caller.launch(make_faulty("print(rank)", tether=caller.tether))
    assert attempt.wait()["state"] == "succeeded"
    assert not attempt.events("caller_gone")
    assert start_time(caller.process.pid) == caller.tether.start
    attempt.check()


def test_the_verdict_on_ranks_that_had_failed_stays(make_faulty: Make, caller: Caller) -> None:
    source = "await_file(out + '/up1') or sys.exit(3) if rank == 0 else stubborn()"
    attempt = make_faulty(source, tether=caller.tether, grace=600.0).launch()
    attempt.until(lambda: attempt.read()["state"] == "stopping")
    caller.kill()
    attempt.until(lambda: attempt.events("caller_gone"))
    os.kill(attempt.rank_pid(1), signal.SIGKILL)
    status = attempt.wait()
    assert (status["state"], status["class"], status["exit_code"]) == ("failed", "exit_code", 3)
    attempt.until_gone()
