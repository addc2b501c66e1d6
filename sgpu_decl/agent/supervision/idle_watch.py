"""Acts on `idle`: says that a node does nothing with what it holds, and may end the attempt.

The monitor measures it; see `agent/monitor/idle_window.py`. It is looked up in its file, so nothing
depends on the monitor being there.
"""

from __future__ import annotations

from sgpu_decl.agent.attempt.attempt_files import read_json, say
from sgpu_decl.agent.attempt.monitor_files import MONITOR, idle_in, idle_pause
from sgpu_decl.agent.attempt.outcome import failed

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from sgpu_decl.agent.attempt.attempt_record import AttemptRecord
    from sgpu_decl.agent.attempt.outcome import Outcome
    from sgpu_decl.agent.system.loop import Loop


class IdleWatch:
    """For the node whose records are in `folder`. `stop` is called at each look that finds it
    idle, with the outcome of an attempt that is idle on all nodes, if that is to end."""

    def __init__(
        self,
        idle: Mapping[str, Any],
        folder: str,
        loop: Loop,
        record: AttemptRecord,
        stop: Callable[[Outcome], None],
    ) -> None:
        self._idle = idle
        self._folder = folder
        self._loop = loop
        self._record = record
        self._stop = stop
        self._said = False
        self._at: object = None  # when the monitor looked that was heard last

    def begin(self) -> None:
        """Look from now on, until the loop cancels `idle`. What was seen of ranks that were started
        before does not count."""
        self._at = (read_json(self._folder, MONITOR) or {}).get("at")
        self._said = False
        self._again()

    def _again(self) -> None:
        self._loop.after("idle", idle_pause(self._idle), self._look)

    def _look(self) -> None:
        self._again()
        found = read_json(self._folder, MONITOR) or {}
        if found.get("at") == self._at:
            return  # nothing was measured since
        self._at, seen = found.get("at"), idle_in(found)
        if seen and not self._said:
            self._record.event("idle", **seen)
            say(idle_words(seen))
        elif self._said and not seen:
            self._record.event("idle_no_more")
        self._said = bool(seen)
        if seen and self._idle["stop"]:
            self._stop(failed("timeout", f"{idle_words(seen)} (`idle`)"))


def idle_words(seen: Mapping[str, Any]) -> str:
    """`each of 8 GPUs was used at most 0.3 % in the last 1200 s: the limit is 5 %`."""
    count, percent = seen["count"], f"{seen['percent']:g} % in the last {seen['seconds']:g} s"
    limit = f"the limit is {seen['limit']:g} %"
    if seen["of"] == "gpus":
        each = "1 GPU was" if count == 1 else f"each of {count} GPUs was"
        return f"{each} used at most {percent}: {limit}"
    each = "1 rank" if count == 1 else f"each of {count} ranks"
    return f"{each} used a processor at most {percent}: {limit}"
