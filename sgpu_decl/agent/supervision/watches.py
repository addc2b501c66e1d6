"""What ends an attempt though its ranks go on: a hang, and the end of the process it is tied to."""

from __future__ import annotations

import os
import time

from sgpu_decl.agent.attempt.attempt_files import say
from sgpu_decl.agent.ranks.rank_start import rank_folder
from sgpu_decl.agent.system import processes
from sgpu_decl.agent.system.fast_stdlib import signal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from sgpu_decl.agent.attempt.attempt_record import AttemptRecord
    from sgpu_decl.agent.ranks.rank_group import RankGroup
    from sgpu_decl.agent.system.loop import Loop

# On this signal, faulthandler writes all stacks of a rank to `fault.log`, as `_air.py` sets up. No
# program uses it by chance, and it is only sent to ranks that run `_air.py`.
STACKS = signal.SIGRTMIN + 8

_LOOKS = 4  # in one progress_timeout: a hang is reported after at most 1.25 of it
_IDLE_SHARE = 0.01  # of one processor: threads that only wait still wake up at times
_DUMP_TIME = 0.3
_LOOKED_AT = 10.0  # seconds for the processes of all ranks that do not write their stacks
_CALLER_LOOK = 0.2  # seconds between two looks, if the kernel does not report the end of a process


class HangDetector:
    """Detects a hang: no rank wrote or used the processor for `seconds` (`progress_timeout`).

    Looks a few times in that time, and then calls `hung`. `workers()` are processes that work for
    the ranks, and not below them.
    """

    def __init__(
        self,
        loop: Loop,
        group: RankGroup,
        run_dir: str,
        seconds: float,
        hung: Callable[[], None],
        hold: Callable[[], None],
        workers: Callable[[], list[int]] = list,
    ) -> None:
        self._loop = loop
        self._hold = hold
        self._group = group
        self._run_dir = run_dir
        self._seconds = seconds
        self._hung = hung
        self._workers = workers

    def begin(self, restart: int) -> None:
        """Start looking, from now on, at the ranks of that restart."""
        self._restart = restart
        self._last = self._measure()
        self._moved = time.monotonic()
        self._again()

    def _again(self) -> None:
        self._loop.after("progress", self._seconds / _LOOKS, self._look)

    def _look(self) -> None:
        before, self._last = self._last, self._measure()
        idle = _IDLE_SHARE * self._seconds / _LOOKS * os.sysconf("SC_CLK_TCK")
        if (
            before is None
            or self._last is None
            or before[1] != self._last[1]
            or abs(before[0] - self._last[0]) > max(1.0, idle)
        ):
            self._moved = time.monotonic()
        if time.monotonic() - self._moved < self._seconds:
            self._again()
            return
        self._hold()
        leave_stacks(self._group, self._loop, self._run_dir, self._restart, self._hung)

    def _measure(self) -> tuple[int, int] | None:
        """Return the CPU ticks of the ranks' process trees, and the bytes of their logs.

        None if they cannot be read (logs deleted, no descriptor left), which is no hang.
        """
        try:
            return self._sums()
        except OSError:
            return None

    def _sums(self) -> tuple[int, int]:
        ticks = sum(map(processes.cpu_ticks, self._workers()))
        size = 0
        for rank, pid in self._group.living.items():
            ticks += sum(map(processes.cpu_ticks, [pid, *processes.descendants(pid)]))
            folder = rank_folder(self._run_dir, rank, self._restart)
            for name in ("stdout.log", "stderr.log"):
                size += os.stat(os.path.join(folder, name)).st_size
        return ticks, size


def leave_stacks(
    group: RankGroup, loop: Loop, run_dir: str, restart: int, then: Callable[[], None]
) -> None:
    """Have the Python ranks of this node write their stacks, note of others where they are, and go
    on with `then`."""
    others: dict[str, int] = {}
    for rank, pid in group.living.items():
        if group.python and processes.handles(pid, STACKS):
            os.kill(pid, STACKS)
        else:  # it is a command, or executed a program, and would die
            others[os.path.join(rank_folder(run_dir, rank, restart), "fault.log")] = pid
    ended = [not others]
    until = time.monotonic() + _LOOKED_AT
    if others:
        parent = os.getpid()
        try:
            reader = os.fork()  # it waits for py-spy
        except OSError:
            reader = -1
        if reader == 0:
            _note_places(others, loop, parent)
        if reader > 0:
            loop.watch(reader, lambda *_: ended.append(True))
        else:  # no process more is allowed: nobody looks
            ended.append(True)

    def look() -> None:
        if any(ended) or time.monotonic() > until:
            then()
        else:
            loop.after("progress", _DUMP_TIME, look)

    loop.after("progress", _DUMP_TIME, look)


def _note_places(others: Mapping[str, int], loop: Loop, parent: int) -> None:
    """In a process of its own: write into each file where that process is."""
    try:
        loop.close()
        processes.die_with_parent(parent)
        signal.alarm(int(_LOOKED_AT))
        from sgpu_decl.agent.ranks.rank_stacks import places_of_rank

        until = time.monotonic() + _LOOKED_AT / 2
        for path, pid in others.items():
            with open(path, "a", encoding="utf-8") as file:
                file.write(places_of_rank(pid, until))
    except OSError:
        pass  # the disk is full
    finally:
        os._exit(0)


class HangAlarm:
    """What the monitor of node 0 says about ranks that wait for others. A hang goes into the events
    and the log, and ends the run if `hang` or `progress_timeout` asks for that: calls `hung`."""

    def __init__(self, record: AttemptRecord, hung: Callable[[], None]) -> None:
        self._record = record
        self._hung = hung
        self.reset()

    def reset(self) -> None:
        """Ranks start again."""
        self.wait: dict[str, Any] | None = None  # the hang that goes on now
        self._held = False

    def hold(self) -> None:
        """Keep what is known: ranks write their stacks from now on, and so they look busy."""
        self._held = True

    def go_on(self) -> None:
        """Hear the monitor again: the run goes on."""
        self._held = False

    def hear(self, message: Mapping[str, Any]) -> None:
        """Take a message of the monitor: the `wait` as in `monitor.json`, or None, and whether it
        `ends` the run."""
        if self._held:
            return
        wait = message["wait"]
        if wait is not None and wait["alarm"]:
            said = self.wait
            self.wait = wait
            if said is None or said["ranks"] != wait["ranks"] or said["kind"] != wait["kind"]:
                self._record.event("hang", durable=True, **wait)
                say(wait["summary"])
            if message["ends"]:
                self.hold()
                self._hung()
        elif self.wait is not None:
            self.wait = None
            self._record.event("hang_over")


def watch_caller(tether: Mapping[str, int], loop: Loop, gone: Callable[[], None]) -> None:
    """Call `gone` once this very process has ended; at once if it has already.

    The start time is read while the pidfd is open, so a new process of the same pid never counts.

    Raises:
        OSError: there is no descriptor left to watch it with.
    """
    pid, started = tether["pid"], tether["start"]
    try:
        handle = processes.open_process(pid)
    except ProcessLookupError:
        gone()
        return

    def look() -> None:
        if processes.alive(pid, started):
            loop.after("tether", _CALLER_LOOK, look)
        else:
            gone()

    def ended() -> None:
        loop.forget(handle)
        gone()

    if handle < 0:
        look()
    elif processes.alive(pid, started):
        loop.read(handle, ended)
    else:
        os.close(handle)
        gone()
