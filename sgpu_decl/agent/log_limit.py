"""A bound on every log that keeps its newest part, with nothing in the way of whoever writes.

Ranks append to their files directly. Now and then the supervisor looks how long these are, and of
one that outgrew the bound it gives the oldest part back to the file system: a hole. Offsets stay
what they are, for O_APPEND, for the time index and for a viewer in the middle of the file. So one
way serves Python ranks, commands, their children and native code, and a stream costs its writer
nothing. (Rotation would need every writer to open the file anew; a bound inside the stream of
Python ranks would see neither commands nor what native code prints.)

Between two looks a log may exceed its bound. The next look comes when the fastest could have
filled its room at twice the rate seen, and after half a minute at the latest. A file system
without holes, or a kernel that does not tell where they are, keeps the logs whole, which one event
tells.
"""

from __future__ import annotations

import ctypes
import os
import time

from sgpu_decl.agent.rank_start import rank_folder

TYPE_CHECKING = False
if TYPE_CHECKING:
    from sgpu_decl.agent.attempt_record import AttemptRecord
    from sgpu_decl.agent.loop import Loop
    from sgpu_decl.agent.rank_group import RankGroup

__all__ = ["LogBound"]

_SOONEST, _LATEST = 0.5, 30.0
_KEPT = 0.75  # of the bound: a log that is cut has room again for a while
_MUCH = 1 / 64  # of the bound, in one go: look again soon
_BLOCK = 4096
_PUNCH_HOLE = 0x1 | 0x2  # FALLOC_FL_KEEP_SIZE | FALLOC_FL_PUNCH_HOLE
_INDEX_SHARE = 16  # an entry of 16 bytes stands for far more than as many bytes of log

_libc = ctypes.CDLL(None, use_errno=True)


class LogBound:
    """Keeps each stream of the ranks in `folder` to about `limit` bytes on disk."""

    def __init__(
        self, loop: Loop, group: RankGroup, record: AttemptRecord, folder: str, limit: int
    ) -> None:
        self._loop = loop
        self._group = group
        self._record = record
        self._folder = folder
        self._bounds = tuple(
            (f"{stream}.{kind}", bound)
            for stream in ("stdout", "stderr")
            for kind, bound in (("log", limit), ("idx", limit // _INDEX_SHARE))
        )

    def begin(self, restart: int) -> None:
        """Start looking at the logs of that restart."""
        self._restart = restart
        self._start: dict[str, int] = {}  # where what is kept begins
        self._size: dict[str, int] = {}
        self._looked = time.monotonic()
        self._patience = _SOONEST
        self._loop.after("logs", _SOONEST, self.look)

    def look(self) -> None:
        """Cut what is too long, and set the time of the next look."""
        now = time.monotonic()
        elapsed, self._looked = max(now - self._looked, 0.001), now
        self._patience = min(_LATEST, 2 * self._patience)
        delay = _LATEST
        for rank in self._group.living:
            folder = rank_folder(self._folder, rank, self._restart)
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
                if grown > bound * _MUCH:
                    self._patience = _SOONEST
                if grown:
                    room = bound - (size - self._start.get(path, 0))
                    delay = min(delay, room * elapsed / (2 * grown))
        self._loop.after("logs", max(_SOONEST, min(delay, self._patience)), self.look)

    def _cut(self, path: str, size: int, bound: int) -> None:
        end = int(size - _KEPT * bound) // _BLOCK * _BLOCK
        log = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
        try:
            os.lseek(log, 0, os.SEEK_DATA)  # readers skip a hole by it: without it, none is made
            length = ctypes.c_int64(end)
            if _libc.fallocate(log, _PUNCH_HOLE, ctypes.c_int64(0), length) != 0:
                code = ctypes.get_errno()
                raise OSError(code, os.strerror(code))
        finally:
            os.close(log)
        self._start[path] = end

    def _give_up(self, error: OSError) -> bool:
        """Say whether the file system cannot do this at all; a log that is gone is no reason."""
        if isinstance(error, FileNotFoundError):
            return False
        self._record.event("logs_not_bounded", reason=error.strerror)
        return True
