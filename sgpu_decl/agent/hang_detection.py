"""Noticing a hang: no rank wrote anything or used the processor for `progress_timeout`."""

from __future__ import annotations

import os
import time

from sgpu_decl.agent import processes
from sgpu_decl.agent.fast_stdlib import signal
from sgpu_decl.agent.rank_start import rank_folder

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from sgpu_decl.agent.loop import Loop
    from sgpu_decl.agent.rank_group import RankGroup

__all__ = ["STACKS", "HangDetector"]

# `_air.py` has faulthandler write all stacks to the rank's `fault.log` when this signal comes. No
# program uses it by chance, and it is only sent to ranks that run `_air.py`.
STACKS = signal.SIGRTMIN + 8

_LOOKS = 4  # in one progress_timeout: a hang is told after at most 1.25 of it
_IDLE_SHARE = 0.01  # of one processor: threads that only wait still wake up now and then
_DUMP_TIME = 0.3


class HangDetector:
    """Looks at the ranks a few times per `seconds` and calls `hung` when nothing moved for long."""

    def __init__(
        self, loop: Loop, group: RankGroup, folder: str, seconds: float, hung: Callable[[], None]
    ) -> None:
        self._loop = loop
        self._group = group
        self._folder = folder
        self._seconds = seconds
        self._hung = hung

    def begin(self, restart: int) -> None:
        """Start looking, from now on, at the ranks of that restart."""
        self._restart = restart
        self._seen = self._measure()
        self._moved = time.monotonic()
        self._again()

    def _again(self) -> None:
        self._loop.after("progress", self._seconds / _LOOKS, self._look)

    def _look(self) -> None:
        before, self._seen = self._seen, self._measure()
        idle = _IDLE_SHARE * self._seconds / _LOOKS * os.sysconf("SC_CLK_TCK")
        if (
            before is None
            or self._seen is None
            or before[1] != self._seen[1]
            or abs(before[0] - self._seen[0]) > max(1.0, idle)
        ):
            self._moved = time.monotonic()
        if time.monotonic() - self._moved < self._seconds:
            self._again()
            return
        if self._group.python:
            for pid in self._group.living.values():
                if processes.handles(pid, STACKS):  # else it would die: it executed a program
                    os.kill(pid, STACKS)
        self._loop.after("progress", _DUMP_TIME, self._hung)

    def _measure(self) -> tuple[int, int] | None:
        """Return the CPU ticks that the ranks' process trees used and the bytes of their logs.

        None where that cannot be seen (logs deleted, no descriptor left), which is no hang.
        """
        try:
            return self._sums()
        except OSError:
            return None

    def _sums(self) -> tuple[int, int]:
        ticks = written = 0
        for rank, pid in self._group.living.items():
            ticks += sum(map(processes.cpu_ticks, [pid, *processes.descendants(pid)]))
            folder = rank_folder(self._folder, rank, self._restart)
            for name in ("stdout.log", "stderr.log"):
                written += os.stat(os.path.join(folder, name)).st_size
        return ticks, written
