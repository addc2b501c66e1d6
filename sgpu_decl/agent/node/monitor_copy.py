"""Brings what the monitor of node 0 sees to the launch folder, where readers look for it."""

from __future__ import annotations

import os
import time
from contextlib import suppress

from sgpu_decl.agent.attempt.attempt_files import write_atomic
from sgpu_decl.agent.attempt.monitor_files import MONITOR

_SOONEST, _LATEST = 5.0, 30.0  # seconds between two copies: a new run is looked at more often


class MonitorCopy:
    """From the folder of the node's records to the folder `target` of the platform's attempt."""

    def __init__(self, folder: str, target: str) -> None:
        self._source = os.path.join(folder, MONITOR)
        self._target = target
        self._pause = _SOONEST
        self._due = time.monotonic() + _SOONEST
        self._copied = 0.0  # the time of the file that was copied last

    def turn(self) -> None:
        """Copy the file if it is time, and there is a new one. That it fails harms nobody."""
        if time.monotonic() < self._due:
            return
        with suppress(OSError):
            changed = os.stat(self._source).st_mtime
            if changed != self._copied:
                with open(self._source, "rb") as file:
                    write_atomic(self._target, MONITOR, file.read())
                self._copied = changed
                self._pause = min(2 * self._pause, _LATEST)
        self._due = time.monotonic() + self._pause
