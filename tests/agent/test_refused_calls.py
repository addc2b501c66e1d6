"""Runs on a kernel that refuses system calls, for lack of them or by the rules of a sandbox."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest

from sgpu_decl.agent.attempt.attempt_status import request_cancel
from sgpu_decl.agent.system.kernel_features import COSTS
from sgpu_decl.agent.system.processes import start_time
from sgpu_decl.rendering.spec import Tether, Warm
from sgpu_decl.testing.refused_calls import REFUSABLE
from tests.sampling import sampled, strided

Make = Callable[..., Any]

_LAUNCH = """
import sys
from pathlib import Path
from sgpu_decl.agent.launching.agent_launch import launch
launch(Path(sys.argv[1]), secrets={"PASSWORD": "hunter2"})
"""

# Each rank leaves a daemon in a session of its own, and a process without environment in that of
# the rank.
_SOURCE = """
import subprocess
assert os.environ["PASSWORD"] == "hunter2"
child = subprocess.Popen(["/bin/sleep", "600"], env={})
leave("child%d" % rank, str(child.pid))
daemon(signal.pause)
block()
"""

_ALONE = [(word, (name,)) for word in ("ENOSYS", "EPERM") for name in REFUSABLE]
_TOGETHER = [(word, REFUSABLE) for word in ("EPERM", "ENOSYS")]


def _launch(attempt: Any, word: str, refused: Sequence[str]) -> Any:
    subprocess.run(
        [
            sys.executable, "-m", "sgpu_decl.testing.refused_calls", word, ",".join(refused),
            "--", sys.executable, "-c", _LAUNCH, str(attempt.folder),
        ],
        check=True,
    )  # fmt: skip
    return attempt


def _kill_a_rank(attempt: Any) -> None:
    os.kill(attempt.rank_pid(1), signal.SIGKILL)


def _kill_supervisor(attempt: Any) -> None:
    os.kill(attempt.supervisor, signal.SIGKILL)


def _kill_guardian_and_cancel(attempt: Any) -> None:
    os.kill(attempt.guardian, signal.SIGKILL)
    attempt.until(lambda: start_time(attempt.guardian) is None)
    request_cancel(attempt.folder)


def _cancel(attempt: Any) -> None:
    request_cancel(attempt.folder)


def _nothing(_attempt: Any) -> None:
    pass


_FAULTS: list[tuple[Callable[[Any], None], Mapping[str, Any], str, str | None, int | None]] = [
    (_kill_a_rank, {}, "failed", "killed", 1),
    (_kill_supervisor, {}, "lost", "supervisor_lost", None),
    (_cancel, {}, "cancelled", None, None),
    (_kill_guardian_and_cancel, {}, "cancelled", None, None),
    (_nothing, {"timeout": 2.0}, "failed", "timeout", None),
]
_WAYS = [(*refusal, *fault) for fault in _FAULTS for refusal in (*_ALONE, *_TOGETHER)]


def _processes_of(attempt: Any) -> list[int]:
    """The ranks, their daemons, and what they started without any variable."""
    started = (attempt.folder / "output").glob("child?")
    return [*attempt.left(), *(int(path.read_text()) for path in started)]


@pytest.mark.parametrize("case", sampled(strided(_WAYS, 5), quick=5))
def test_a_run_ends_as_anywhere_and_leaves_nothing_behind(
    make_faulty: Make, case: tuple[Any, ...]
) -> None:
    word, refused, act, fields, state, failure, rank = case
    warm = Warm(imports=(("decimal", ()),))
    attempt = make_faulty(_SOURCE, secrets={"PASSWORD": "env:PASSWORD"}, warm=warm, **fields)
    _launch(attempt, word, refused).until(lambda: len(_processes_of(attempt)) >= 6)
    attempt.until_up()
    act(attempt)
    ended = attempt.wait()
    assert (ended["state"], ended["class"]) == (state, failure)
    if rank is not None:
        assert ended["first_cause"]["rank"] == rank
    attempt.until(lambda: not any(map(start_time, _processes_of(attempt))))
    attempt.check(crash=state == "lost")
    said = [line for line in attempt.text("agent.log").splitlines() if "this machine lacks" in line]
    lacking = [f"{name} ({word})" for name in refused if name in COSTS]
    assert len(said) == bool(lacking)
    assert all(text in said[0] for text in (*lacking, *map(COSTS.get, refused)) if lacking and text)


@pytest.mark.parametrize("case", sampled([*strided(_ALONE, 3), *_TOGETHER], quick=1))
def test_ranks_end_if_supervisor_and_guardian_are_killed(
    make_faulty: Make, case: tuple[str, Sequence[str]]
) -> None:
    word, refused = case
    attempt = make_faulty("block()", secrets={"PASSWORD": "env:PASSWORD"})
    _launch(attempt, word, refused).until_up()
    attempt.kill_both()
    attempt.until_gone()
    assert attempt.read()["state"] == "lost"


@pytest.mark.parametrize("case", sampled([*strided(_ALONE, 3), *_TOGETHER], quick=1))
def test_an_attempt_ends_with_its_caller(
    make_faulty: Make, case: tuple[str, Sequence[str]]
) -> None:
    word, refused = case
    caller = subprocess.Popen(["sleep", "600"])
    start = start_time(caller.pid)
    assert start is not None
    tether = Tether(pid=caller.pid, start=start)
    attempt = make_faulty("block()", secrets={"PASSWORD": "env:PASSWORD"}, tether=tether)
    _launch(attempt, word, refused).until_up()
    caller.kill()
    caller.wait()
    assert attempt.wait()["state"] == "cancelled"
    attempt.until_gone()


@pytest.mark.parametrize("word", ["ENOSYS", "EPERM"])
def test_logs_stay_whole_if_nobody_could_read_past_a_hole(make_faulty: Make, word: str) -> None:
    source = 'print("x" * 200_000)\nblock()'
    secrets = {"PASSWORD": "env:PASSWORD"}
    attempt = make_faulty(source, world_size=1, log_limit=64 << 10, secrets=secrets)
    _launch(attempt, word, ["seek_data"]).until(lambda: attempt.events("logs_not_bounded"))
    assert attempt.log() == "x" * 200_000 + "\n"
    request_cancel(attempt.folder)
    assert attempt.wait()["state"] == "cancelled"
