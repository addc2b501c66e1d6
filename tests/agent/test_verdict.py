"""Who is named as the first cause: tiers, nanoseconds, and what was only our own stop."""

import json
import signal
from pathlib import Path
from typing import Any

import pytest

from sgpu_decl.agent.attempt.error_file import read_abort, read_error, read_out_of_memory
from sgpu_decl.agent.attempt.verdict import RankEnding, Verdict

MS = 1_000_000


def raised(rank: int, at: int, *, collateral: bool = False, **more: Any) -> RankEnding:
    error = {"class": "exception", "summary": "ValueError: x", "traceback": "t", "time_ns": at,
             "collateral": collateral}  # fmt: skip
    return RankEnding(rank=rank, ended_ns=at + 3 * MS, exit_code=1, error=error, **more)


def named(*endings: RankEnding) -> tuple[int, str, list[int]] | None:
    cause = Verdict(endings).cause
    return None if cause is None else (cause["rank"], cause["class"], cause["simultaneous"])


def test_no_failure_has_no_cause() -> None:
    assert named(RankEnding(rank=0, ended_ns=1, exit_code=0)) is None


def test_the_earlier_exception_is_named_though_it_ended_later() -> None:
    late_end = raised(1, 10 * MS)
    late_end.ended_ns = 90 * MS
    assert named(raised(0, 40 * MS), late_end) == (1, "exception", [])


def test_two_within_five_milliseconds_are_both_named() -> None:
    assert named(raised(2, 10 * MS), raised(0, 14 * MS), raised(1, 16 * MS)) == (
        2, "exception", [0],
    )  # fmt: skip


def test_a_collateral_failure_gives_way_to_a_later_primary_one() -> None:
    killed = RankEnding(rank=1, ended_ns=50 * MS, signal=signal.SIGKILL)
    assert named(raised(0, 10 * MS, collateral=True), killed) == (1, "killed", [])


def test_collateral_alone_is_still_a_cause() -> None:
    assert named(raised(0, 10 * MS, collateral=True)) == (0, "exception", [])


@pytest.mark.parametrize(
    "ending",
    [
        RankEnding(rank=1, ended_ns=20 * MS, signal=signal.SIGTERM, term_ns=15 * MS),
        RankEnding(
            rank=1, ended_ns=99 * MS, signal=signal.SIGKILL, term_ns=15 * MS, kill_ns=98 * MS
        ),
        RankEnding(rank=1, ended_ns=40 * MS, exit_code=1, term_ns=15 * MS),
        RankEnding(rank=1, ended_ns=16 * MS, exit_code=143, term_ns=15 * MS),
        raised(1, 16 * MS, term_ns=15 * MS),
    ],
)
def test_what_we_stopped_is_never_the_cause(ending: RankEnding) -> None:
    assert named(ending) is None


@pytest.mark.parametrize(
    "ending",
    [
        RankEnding(rank=1, ended_ns=20 * MS, signal=signal.SIGKILL, term_ns=15 * MS),
        raised(1, 14 * MS, term_ns=15 * MS),
        RankEnding(rank=1, ended_ns=17 * MS, exit_code=9, term_ns=15 * MS),
        RankEnding(rank=1, ended_ns=16 * MS, signal=signal.SIGSEGV, term_ns=15 * MS),
    ],
)
def test_what_died_by_itself_while_we_stopped_still_counts(ending: RankEnding) -> None:
    assert named(ending) is not None


def test_one_that_was_failing_when_it_was_told_to_stop_is_named_too() -> None:
    first = raised(0, 10 * MS)
    second = raised(1, 14 * MS, term_ns=12 * MS)
    later = raised(2, 16 * MS, term_ns=12 * MS)
    assert named(first, second, later) == (0, "exception", [1])
    assert Verdict([first, second, later]).failed == {0, 1}


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_record_from_before_the_stop_outlives_our_signal(number: int) -> None:
    culprit = raised(0, 10 * MS, term_ns=40 * MS, kill_ns=50 * MS)
    culprit.exit_code, culprit.signal, culprit.ended_ns = None, number, 60 * MS
    victim = raised(1, 30 * MS)
    verdict = Verdict([victim, culprit])
    assert verdict.cause is not None
    assert (verdict.cause["rank"], verdict.cause["class"]) == (0, "exception")
    assert (verdict.first and verdict.first.code, verdict.failed) == (1, frozenset({0, 1}))


def test_a_record_older_than_its_rank_is_not_used() -> None:
    stale = raised(0, 10 * MS, started_ns=11 * MS)
    assert stale.recorded_ns is None


def test_an_incredible_time_in_a_record_is_not_used() -> None:
    future = raised(0, 10 * MS)
    assert future.error is not None
    future.error["time_ns"] = 10**18
    assert future.time_ns == future.ended_ns


def test_a_kill_for_memory_is_told_from_a_plain_one() -> None:
    short = {"group": "/job", "limit_bytes": 48_000_000, "peak_bytes": 1_500_000_000}
    ending = RankEnding(rank=0, ended_ns=1, signal=signal.SIGKILL, memory=short)
    assert named(ending) == (0, "oom", [])
    cause = Verdict([ending]).cause
    assert cause is not None
    assert cause["memory"] == short
    assert cause["summary"].endswith("`/job` ran out of memory (limit 48.0 MB, its peak 1.5 GB)")


# As torch writes them; frames of the C++ stack follow in between.
LOG = "[rank0]:[E709 17:05:39.08 ProcessGroupNCCL.cpp:1899] [PG ID 0 PG GUID 0(default_pg) Rank 0] "
WATCHDOG = LOG + "Process group watchdog thread terminated with exception: "
TIMED_OUT = (
    "[Rank 0] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=4, OpType=ALLREDUCE,"
    " NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran for 600004 milliseconds before timing out."
)
REMOTE = (
    "NCCL error: remote process exited or there was a network error, NCCL version 2.27.5\n"
    "ncclRemoteError: A call failed possibly due to a network error or a remote process exiting"
    " prematurely."
)
DUMPED = (
    "Terminating the process after attempting to dump debug info, due to collective timeout or"
    " exception."
)
OWN = "CUDA error: an illegal memory access was encountered"
FRAMES = "frame #0: c10::Error::Error(c10::SourceLocation, std::string) + 0x98 (libc10.so)\n" * 200


def aborted(folder: Path, text: str, rank: int = 0, at: int = 10 * MS) -> RankEnding:
    folder.mkdir(exist_ok=True)
    (folder / "stderr.log").write_text("a step\n" * 40_000 + text + "\n" + FRAMES)
    return RankEnding(rank=rank, ended_ns=at, signal=signal.SIGABRT, error=read_abort(str(folder)))


@pytest.mark.parametrize("text", [WATCHDOG + TIMED_OUT, WATCHDOG + REMOTE, LOG + DUMPED])
def test_an_abort_by_nccl_for_a_peer_is_collateral(tmp_path: Path, text: str) -> None:
    killed = RankEnding(rank=1, ended_ns=50 * MS, signal=signal.SIGKILL)
    assert named(aborted(tmp_path, text), killed) == (1, "killed", [])


def test_of_watchdogs_alone_the_first_is_named(tmp_path: Path) -> None:
    late = aborted(tmp_path, WATCHDOG + TIMED_OUT, rank=0, at=90 * MS)
    first = aborted(tmp_path, WATCHDOG + TIMED_OUT, rank=1)
    assert named(late, first) == (1, "signal_self", [])
    cause = Verdict([late, first]).cause
    assert cause is not None
    assert cause["summary"] == (
        "rank 1 crashed with SIGABRT: "
        "NCCL's watchdog aborted it, which waited in vain for its peers"
    )


@pytest.mark.parametrize(
    "text", [WATCHDOG + OWN, "Assertion failed", TIMED_OUT, f"{WATCHDOG}{OWN}\n{LOG}{DUMPED}"]
)
def test_any_other_abort_is_the_ranks_own(tmp_path: Path, text: str) -> None:
    killed = RankEnding(rank=1, ended_ns=50 * MS, signal=signal.SIGKILL)
    assert named(aborted(tmp_path, text), killed) == (0, "signal_self", [])


def test_an_abort_without_a_log_is_the_ranks_own(tmp_path: Path) -> None:
    assert read_abort(str(tmp_path)) is None


@pytest.mark.parametrize(
    "data",
    [
        b"", b'{"message": ', b"\xff\xfe\x00", b"[]", b'{"message": 5}', b'{"v": 1}',
        b'{"v": 1, "type": "E", "message": []}', b" " * (1 << 20) + b'{"message": "x"}',
    ],
)  # fmt: skip
def test_an_error_file_of_another_form_says_nothing(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "error.json").write_bytes(data)
    assert read_error(str(tmp_path)) is None


def test_torchs_record_is_read_flat_and_nested(tmp_path: Path) -> None:
    flat = {"message": "torch.distributed.DistBackendError: peer"}
    (tmp_path / "error.json").write_text(json.dumps(flat))
    error = read_error(str(tmp_path))
    assert error is not None
    assert error["collateral"] is True
    nested = {"message": {"message": "ValueError: x",
                          "extraInfo": {"py_callstack": "stack", "timestamp": "1"}}}  # fmt: skip
    (tmp_path / "error.json").write_text(json.dumps(nested))
    error = read_error(str(tmp_path))
    assert error is not None
    assert (error["summary"], error["traceback"]) == ("ValueError: x", "stack")
    assert error["collateral"] is False


FRAMES = 'Traceback (most recent call last):\n  File "a.py", line 1, in <module>\n    main()\n'
KILLED = "ray.exceptions.OutOfMemoryError: Task was killed.\nMemory on the node: 9GB\n"


@pytest.mark.parametrize(
    ("text", "summary"),
    [
        (f"words\n{FRAMES}{KILLED}", "ray.exceptions.OutOfMemoryError: Task was killed."),
        (
            f"{FRAMES}ray.exceptions.RayTaskError(OutOfMemoryError): ray::a()\n",
            "ray.exceptions.RayTaskError(OutOfMemoryError): ray::a()",
        ),
        (f"{FRAMES}{KILLED}{FRAMES}ValueError: mine\n", None),
        (f"{FRAMES}ValueError: {KILLED}", None),
        (f"{FRAMES}ValueError: mine\n{KILLED}", None),
        (KILLED, None),
        ("", None),
    ],
)
def test_the_exception_that_python_ended_with_may_be_that_of_rays_memory_monitor(
    tmp_path: Path, text: str, summary: str | None
) -> None:
    (tmp_path / "stderr.log").write_text(text)
    error = read_out_of_memory(str(tmp_path))
    assert (error and error["summary"]) == summary
    assert error is None or (error["class"], "main()" in error["traceback"]) == ("oom", True)
