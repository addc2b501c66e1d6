"""The tracker process beside the ranks: it makes the MLflow run, and ends after the outcome."""

from __future__ import annotations

import os
import time

from sgpu_decl.agent import processes, records
from sgpu_decl.agent.spawning import LaunchError, spawn

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from sgpu_decl.agent.loop import Loop
    from sgpu_decl.agent.report import Report

__all__ = ["TRACKED", "Tracker"]

TRACKED = "mlflow.json"
_PATIENCE = 10.0  # that a command waits; Python ranks wait themselves, and only if they import it
_LOOK = 0.02


class Tracker:
    """`pipe` is the read end of the pipe whose closing tells the tracker to finish."""

    def __init__(
        self, spec: Mapping[str, Any], folder: str, pipe: int, loop: Loop, report: Report
    ) -> None:
        self._spec = spec
        self._folder = folder
        self._pipe = pipe
        self._loop = loop
        self._report = report
        self._pid = -1

    def start(self) -> None:
        """Start it, if the run is tracked; a run goes on without."""
        asked = self._spec["tracker"]
        if asked is None:
            return
        log = os.path.join(self._folder, "tracker.log")
        environment = {**os.environ, **asked["env"], "SGPU_RUN_DIR": self._folder,
                       "SGPU_TRACKER": self._spec["token"]}  # fmt: skip
        try:
            pid, told = spawn(
                asked["argv"], environment, cwd="/", logs=(log, log), settle=self._loop.close,
                stdin=self._pipe, raise_oom_score=False, guarded=False,
            )  # fmt: skip
        except LaunchError as error:
            self._report.event("tracker_failed", reason=str(error))
            return
        os.close(told)
        self._pid = pid
        self._report.event("tracker_started", pid=pid)
        self._loop.watch(pid, self._ended)

    @property
    def pids(self) -> set[int]:
        """The tracker and what it started: no part of the ranks."""
        return {self._pid, *processes.descendants(self._pid)} if self._pid > 0 else set()

    def variables(self, then: Callable[[dict[str, str]], None]) -> None:
        """Call `then` with the variables of the run for a command, which cannot wait for them
        itself; with none where they do not come in time."""
        deadline = time.monotonic() + _PATIENCE

        def look() -> None:
            told = records.read_json(self._folder, TRACKED)
            if told is None and self._pid > 0 and time.monotonic() < deadline:
                self._loop.after("tracker", _LOOK, look)
                return
            found = told.get("env") if told else None
            named = found if isinstance(found, dict) else {}
            then({str(name): str(value) for name, value in named.items()})

        look()

    def share(self, tell: Callable[[dict[str, Any]], None]) -> None:
        """Call `tell` with what the tracker says, as soon as it does."""
        if self._pid < 0:
            return
        told = records.read_json(self._folder, TRACKED)
        if told is None:
            self._loop.after("tracker", _LOOK, lambda: self.share(tell))
        else:
            tell(told)

    def _ended(self, status: int, _now: int) -> None:
        self._pid = -1
        self._report.event("tracker_ended", exit_code=os.waitstatus_to_exitcode(status))
