"""Whether a node does nothing with what it holds: the mean use of each GPU over a window of time.

It is the mean that counts: a kernel now and then keeps nothing from being idle, and a pause that is
shorter than the window, as for an evaluation or a checkpoint, is none if there is work around it.
"""

from __future__ import annotations

from collections import deque

from sgpu_decl.agent.monitor.usage_sums import LONGEST

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

_PARTS = 20  # of the window, that are kept


class IdleWindow:
    """The window has so many `seconds`; use is in percent, and what stays `below` that is idle."""

    def __init__(self, below: float, seconds: float) -> None:
        self._below = below
        self._seconds = seconds
        self._parts: deque[_Part] = deque()
        self._clock: float | None = None
        self._of = ""

    def add(
        self,
        clock: float,
        ranks: Mapping[int, Mapping[str, int]],
        devices: Sequence[Mapping[str, int]],
    ) -> None:
        """Take the measurements of one look: the use of GPUs, or that of a processor by each rank
        where no GPU tells its use."""
        used = {one["device"]: one["utilisation"] for one in devices if "utilisation" in one}
        of = "gpus" if used else "processors"
        values: Mapping[int, float] = used or {rank: one["cpu"] / 10 for rank, one in ranks.items()}
        before, self._clock = self._clock, clock
        seconds = 0.0 if before is None else clock - before
        if of != self._of or not 0 <= seconds <= LONGEST:  # it slept, or its clock was set
            self._of = of
            self._parts.clear()
            return
        if not values:
            return
        if not self._parts or self._parts[-1].seconds >= self._seconds / _PARTS:
            self._parts.append(_Part())
        self._parts[-1].add(seconds, values)
        while self._whole - self._parts[0].seconds >= self._seconds:
            self._parts.popleft()

    @property
    def _whole(self) -> float:
        return sum(part.seconds for part in self._parts)

    def to_json(self) -> dict[str, Any] | None:
        """Return `of`, which is `gpus` or `processors`, their `count`, the mean use of the one that
        is used most in `percent`, the `limit` and the `seconds` of the window; None if the node is
        not idle, or was not measured for so long."""
        if not self._parts or self._whole < self._seconds:
            return None
        sums: dict[int, float] = {}
        for part in self._parts:
            for key, used in part.used.items():
                sums[key] = sums.get(key, 0.0) + used
        highest = max(sums.values()) / self._whole
        if highest >= self._below:
            return None
        return {
            "of": self._of,
            "count": len(sums),
            "percent": round(highest, 2),
            "limit": self._below,
            "seconds": self._seconds,
        }


class _Part:
    """`used` is percent times seconds."""

    __slots__ = ("seconds", "used")

    def __init__(self) -> None:
        self.seconds = 0.0
        self.used: dict[int, float] = {}

    def add(self, seconds: float, values: Mapping[int, float]) -> None:
        self.seconds += seconds
        for key, value in values.items():
            self.used[key] = self.used.get(key, 0.0) + seconds * value
