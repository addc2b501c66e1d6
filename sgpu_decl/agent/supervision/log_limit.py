"""A bound on every log that keeps its newest part, and costs the writers nothing.

Ranks append to their files directly. From time to time the supervisor looks at the sizes. If a log
is too long, it gives the oldest part back to the file system, as a hole. Offsets do not change, so
O_APPEND, the time index and viewers go on. This serves Python ranks, commands, their children and
native code alike. (Rotation would need every writer to open the file again, and a bound in the
streams of Python ranks would miss commands and native code.)

Between two looks a log may exceed its bound. The next look comes when the fastest log could be full
at twice its present rate, and after half a minute at the latest. If the file system has no holes,
or the kernel cannot find them, logs stay whole, and one event says so.
"""

from __future__ import annotations

import os
import time

from sgpu_decl.agent.ranks.rank_start import rank_folder
from sgpu_decl.agent.system.kernel_features import punch_hole

TYPE_CHECKING = False
if TYPE_CHECKING:
    from sgpu_decl.agent.attempt.attempt_record import AttemptRecord
    from sgpu_decl.agent.ranks.rank_group import RankGroup
    from sgpu_decl.agent.system.loop import Loop

_SOONEST, _LATEST = 0.5, 30.0
_REMAINDER = 0.75  # of the bound, after a cut: there is room again for a while
_FAST = 1 / 64  # of the bound, between two looks: look again soon
_BLOCK = 4096
_INDEX_SHARE = 16  # an entry of 16 bytes stands for far more than as many bytes of log


class LogBound:
    """Keeps each stream of the ranks of this node to about `limit` bytes on disk."""

    def __init__(
        self, loop: Loop, group: RankGroup, record: AttemptRecord, run_dir: str, limit: int
    ) -> None:
        self._loop = loop
        self._group = group
        self._record = record
        self._run_dir = run_dir
        self._bounds = tuple(
            (f"{stream}.{kind}", bound)
            for stream in ("stdout", "stderr")
            for kind, bound in (("log", limit), ("idx", limit // _INDEX_SHARE))
        )

    def begin(self, restart: int) -> None:
        """Start looking at the logs of that restart."""
        self._restart = restart
        self._start: dict[str, int] = {}  # the end of the hole, by path
        self._size: dict[str, int] = {}
        self._last_look = time.monotonic()
        self._patience = _SOONEST
        self._loop.after("logs", _SOONEST, self.look)

    def look(self) -> None:
        """Cut logs that are too long, and set the time of the next look."""
        now = time.monotonic()
        elapsed, self._last_look = max(now - self._last_look, 0.001), now
        self._patience = min(_LATEST, 2 * self._patience)
        delay = _LATEST
        for rank in self._group.living:
            folder = rank_folder(self._run_dir, rank, self._restart)
            for name, bound in self._bounds:
                path = os.path.join(folder, name)
                try:
                    size = os.stat(path).st_size
                    if size - self._start.get(path, 0) > bound:
                        self._cut(path, size, bound)
                except OSError as error:
                    if self._give_up(error):
                        return
                    continue
                grown = size - self._size.get(path, 0)
                self._size[path] = size
                if grown > bound * _FAST:
                    self._patience = _SOONEST
                if grown:
                    room = bound - (size - self._start.get(path, 0))
                    delay = min(delay, room * elapsed / (2 * grown))
        self._loop.after("logs", max(_SOONEST, min(delay, self._patience)), self.look)

    def _cut(self, path: str, size: int, bound: int) -> None:
        end = int(size - _REMAINDER * bound) // _BLOCK * _BLOCK
        log = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
        try:
            os.lseek(log, 0, os.SEEK_DATA)  # readers need this to skip the hole
            punch_hole(log, end)
        finally:
            os.close(log)
        self._start[path] = end

    def _give_up(self, error: OSError) -> bool:
        """Whether the file system cannot do this at all. A missing log is no reason."""
        if isinstance(error, FileNotFoundError):
            return False
        self._record.event("logs_not_bounded", reason=error.strerror)
        return True
