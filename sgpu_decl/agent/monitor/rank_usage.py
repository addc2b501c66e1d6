"""What the ranks of a node use: processor, memory and storage, with all processes below them.

From proc(5): `utime`, `stime` and `rss` in /proc/PID/stat, `read_bytes` and `write_bytes` in
/proc/PID/io. Memory that processes share is counted for each of them.
"""

from __future__ import annotations

import os

from sgpu_decl.agent.system.processes import descendants, stat_fields

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")
_FAMILY = 10.0  # seconds between two looks at which processes a rank has
_READ, _WRITTEN = b"read_bytes", b"write_bytes"


class RankUsage:
    """The use of one rank since the last look at it."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._family: list[int] = []
        self._looked: float | None = None
        self._before: tuple[float, int, int, int] | None = None

    def look(self, now: float) -> Mapping[str, int] | None:
        """Return `cpu` in thousandths of a core and `memory` in MiB, and the KiB that were `read`
        and `written` since the last look; None at the first look, and where the rank is gone."""
        if self._looked is None or now - self._looked >= _FAMILY:
            self._family, self._looked = descendants(self.pid), now
        ticks = pages = read = written = 0
        for pid in (self.pid, *self._family):
            fields = stat_fields(pid)
            if len(fields) < 22:
                if pid == self.pid:
                    return None
                continue
            ticks += sum(map(int, fields[11:15]))
            pages += int(fields[21])
            one = _storage(pid)
            read, written = read + one[0], written + one[1]
        before, self._before = self._before, (now, ticks, read, written)
        if before is None or now <= before[0]:
            return None
        return {
            "cpu": max(0, round(1000 * (ticks - before[1]) / _TICKS / (now - before[0]))),
            "memory": pages * _PAGE >> 20,
            "read": max(0, read - before[2]) >> 10,
            "written": max(0, written - before[3]) >> 10,
        }


def _storage(pid: int) -> tuple[int, int]:
    try:
        with open(f"/proc/{pid}/io", "rb", buffering=0) as file:
            lines = file.read(1024).split(b"\n")
    except OSError:  # it has ended, or belongs to another user now
        return 0, 0
    values = dict(line.split(b": ", 1) for line in lines if b": " in line)
    return int(values.get(_READ, 0)), int(values.get(_WRITTEN, 0))
