"""Stacks of running ranks, which go on: who is asked, who is not, and what comes back."""

import json
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest

from sgpu_decl.agent.attempt.attempt_status import request_cancel
from sgpu_decl.agent.ranks.rank_stacks import SIGNAL, rank_stacks
from sgpu_decl.agent.system.processes import handles
from sgpu_decl.rendering.spec import Entry
from tests.support import shell_program

# A thread waits in C code, as ranks do in a collective; the main thread has a function of its own.
WAITING = """
import threading
def wait_in_thread():
    lock = threading.Lock()
    lock.acquire()
    lock.acquire()
threading.Thread(target=wait_in_thread, daemon=True).start()
def wait_in_main():
    block()
wait_in_main()
"""


def pids(attempt: Any) -> list[int]:
    return [attempt.rank_pid(0), attempt.rank_pid(1)]


def started(attempt: Any) -> list[Any]:
    """The ranks whose process has their environment."""
    answers = rank_stacks(str(attempt.folder), None)
    return [one for one in answers if "is starting or ending" not in (one["reason"] or "")]


def test_all_threads_of_each_rank_are_shown_and_go_on(make_faulty: Any) -> None:
    attempt = make_faulty(WAITING, code_root="/mine").launch().until_up()
    for _ in range(2):
        answers = rank_stacks(str(attempt.folder), None)
        assert [(one["rank"], one["pid"]) for one in answers] == [*enumerate(pids(attempt))]
        for one in answers:
            assert one["reason"] is None
            assert one["stack"].count("in wait_in_main") == 1
            assert one["stack"].count("in wait_in_thread") == 1
            assert "sgpu_decl/rank" not in one["stack"]
            assert 'File "/mine/main.py"' in one["stack"]
            assert str(attempt.folder) not in one["stack"]
    assert attempt.read()["state"] == "running"
    assert [one["rank"] for one in rank_stacks(str(attempt.folder), [1])] == [1]
    request_cancel(attempt.folder)
    assert attempt.wait()["first_cause"] is None
    assert rank_stacks(str(attempt.folder), None) == []


def test_stacks_that_were_asked_for_are_no_part_of_a_later_crash(make_faulty: Any) -> None:
    source = "up()\nawait_file(out + '/go')\nos.abort()"
    attempt = make_faulty(source, world_size=1).launch()
    attempt.until(lambda: attempt.up(0))
    assert rank_stacks(str(attempt.folder), [0])[0]["stack"]
    (attempt.folder / "output" / "go").touch()
    attempt.wait()
    assert attempt.text("ranks/0/0/fault.log").count("most recent call first") == 1


def test_a_rank_without_the_handler_is_not_signalled(make_faulty: Any, tmp_path: Path) -> None:
    """A program that does not handle the signal would end by it."""
    go = tmp_path / "go"
    wait = f"while [ ! -e {shlex.quote(str(go))} ]; do sleep 0.01; done"
    slow = f'{wait}\nexec {shlex.quote(sys.executable)} "$@"'
    python = shell_program(tmp_path / "python", slow)
    attempt = make_faulty("block()", python=str(python)).launch()
    attempt.until(lambda: len(started(attempt)) == 2)
    answers = rank_stacks(str(attempt.folder), None)
    assert len(answers) == 2
    for one in answers:
        assert one["stack"] is None
        assert "has not started its Python code yet" in one["reason"]
    go.touch()
    attempt.until_up()  # both survived
    assert all(handles(pid, SIGNAL) for pid in pids(attempt))
    assert all(one["stack"] for one in rank_stacks(str(attempt.folder), None))


def test_a_rank_that_executed_another_program_is_not_signalled(make_faulty: Any) -> None:
    source = "up()\nos.execvp('sleep', ['sleep', '600'])"
    attempt = make_faulty(source).launch().until_up()
    attempt.until(lambda: not any(handles(pid, SIGNAL) for pid in pids(attempt)))
    assert "runs another program" in rank_stacks(str(attempt.folder), None)[0]["reason"]
    attempt.until(lambda: attempt.read()["state"] == "running")


@pytest.mark.parametrize(
    ("program", "stack", "reason"),
    [
        (None, None, "install `py-spy`"),
        ("echo \"Process $3: sleep 600\"", "Process {pid}: sleep 600\n", None),
        ("echo 'Permission Denied: Try running again' >&2; exit 1", None, "`py-spy` may not read"),
        ("echo 'not Python' >&2; exit 1", None, "it runs no Python program"),
    ],
)  # fmt: skip
def test_the_stacks_of_a_command_are_those_that_py_spy_shows(
    program: str | None,
    stack: str | None,
    reason: str | None,
    make_attempt: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if program is not None:
        shell_program(tmp_path / "bin" / "py-spy", program)
    command = Entry(kind="command", command=("sleep", "600"))
    attempt = make_attempt(entry=command, world_size=1).launch()
    attempt.until(lambda: started(attempt))
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    (one,) = rank_stacks(str(attempt.folder), None)
    assert one["stack"] == (stack and stack.format(pid=one["pid"]))
    assert one["reason"] is reason if reason is None else reason in one["reason"]


def test_all_ranks_share_the_time_of_py_spy_and_keep_what_was_read(
    make_attempt: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    once = tmp_path / "once"
    shell_program(
        tmp_path / "bin" / "py-spy",
        f"if [ -e {shlex.quote(str(once))} ]; then exec /bin/sleep 600; fi\n"
        f"echo read; : > {shlex.quote(str(once))}",
    )
    command = Entry(kind="command", command=("sleep", "600"))
    attempt = make_attempt(entry=command, world_size=2).launch()
    attempt.until(lambda: len(started(attempt)) == 2)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setattr("sgpu_decl.agent.ranks.rank_stacks._PY_SPY_SECONDS", 1)
    first, second = rank_stacks(str(attempt.folder), None)
    assert (first["stack"], first["reason"]) == ("read\n", None)
    assert second["stack"] is None
    assert "did not end within 1 s, of all ranks together" in second["reason"]


def test_a_rank_whose_process_cannot_be_read_is_named(make_faulty: Any) -> None:
    attempt = make_faulty("block()").launch().until_up()
    spec = json.loads((attempt.folder / "spec.json").read_text())
    (attempt.folder / "spec.json").chmod(0o600)
    (attempt.folder / "spec.json").write_text(json.dumps({**spec, "token": "of another"}))
    for one in rank_stacks(str(attempt.folder), None):
        assert one["stack"] is None
        assert "belongs to another user" in one["reason"]
