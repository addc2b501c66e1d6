"""The event loop: order of deaths, timers, and descriptors that change hands within a turn."""

import os
import signal
import time
from pathlib import Path

from sgpu_decl.agent.host.slots import Waiters
from sgpu_decl.agent.system.loop import Loop


def test_an_event_is_not_told_to_the_next_owner_of_its_descriptor(loop: Loop) -> None:
    told: list[str] = []
    first, first_end = os.pipe()
    second, second_end = os.pipe()
    fresh: list[tuple[int, int]] = []

    def close_the_other(mine: int, other: int) -> None:
        told.append("once")
        os.read(mine, 1)
        loop.forget(other)
        reader, writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        assert reader == other
        loop.read(reader, lambda: told.append("wrong"))
        fresh.append((reader, writer))

    loop.read(first, lambda: close_the_other(first, second))
    loop.read(second, lambda: close_the_other(second, first))
    os.write(first_end, b"x")
    os.write(second_end, b"x")
    loop.turn()
    assert told == ["once"]
    for descriptor in {first_end, second_end, *(one for pair in fresh for one in pair)}:
        os.close(descriptor)


def test_children_are_told_with_their_status(loop: Loop) -> None:
    ended: list[int] = []
    pid = os.fork()
    if pid == 0:
        os._exit(7)
    loop.watch(pid, lambda status, _now: ended.append(os.waitstatus_to_exitcode(status)))
    while not ended:
        loop.turn()
    assert ended == [7]


def test_timers_come_in_order_and_can_be_cancelled(loop: Loop) -> None:
    told: list[str] = []
    now = time.monotonic_ns()
    loop.at("late", now - 1, lambda: told.append("late"))

    def early() -> None:
        told.append("early")
        loop.cancel("gone")

    loop.at("early", now - 2, early)
    loop.at("gone", now - 1, lambda: told.append("gone"))
    loop.turn()
    assert told == ["early", "late"]


def test_a_timer_may_be_years_away(loop: Loop) -> None:
    told: list[str] = []
    ready, write = os.pipe()
    loop.after("far", 100 * 366 * 86_400.0, lambda: told.append("far"))

    def read() -> None:
        told.append("read")
        loop.forget(ready)

    loop.read(ready, read)
    os.close(write)
    loop.turn()
    assert told == ["read"]


def test_a_waiter_that_dies_is_started_again(loop: Loop, tmp_path: Path) -> None:
    def block() -> None:
        try:
            (tmp_path / "died").touch(exist_ok=False)
        except FileExistsError:
            return
        os.kill(os.getpid(), signal.SIGKILL)

    told: list[str] = []
    Waiters(loop).start(block, lambda: told.append("free"))
    while not told:
        loop.turn()
    assert told == ["free"]


def test_waiters_that_were_stopped_stay_so(loop: Loop) -> None:
    ended: list[int] = []
    waiters = Waiters(loop)
    waiters.start(signal.pause, lambda: ended.append(1))
    waiters.stop()
    while True:
        loop.turn()
        try:
            os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            break
    assert not ended
