"""The tracker process beside the ranks: it makes the MLflow run, and ends after the outcome."""

from __future__ import annotations

import os

from sgpu_decl.agent.attempt import attempt_files
from sgpu_decl.agent.attempt.attempt_files import TRACKED, TRACKER
from sgpu_decl.agent.ranks.rank_start import LaunchError, spawn
from sgpu_decl.agent.system import processes
from sgpu_decl.agent.system.fast_stdlib import signal
from sgpu_decl.agent.system.secrets import split_secrets

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from sgpu_decl.agent.attempt.attempt_record import AttemptRecord
    from sgpu_decl.agent.system.loop import Loop

_PATIENCE = 120.0  # the tracker gives up sooner by itself; MLflow needs seconds to make its tables
_SHORT = 0.5  # seconds of waiting before the status shows it
_LOOK = 0.02
_SHOWN = ("run_id", "experiment_id", "experiment", "tracking_uri", "error", "instead_of")


class TrackerProcess:
    """`pipe` is the read end of a pipe that is closed when the tracker should finish.

    `answer` is the content of `mlflow.json`; None while there is none, and if nothing is tracked.
    """

    def __init__(
        self,
        spec: Mapping[str, Any],
        secrets: Mapping[str, str],
        folder: str,
        pipe: int,
        loop: Loop,
        record: AttemptRecord,
    ) -> None:
        self._spec = spec
        self._secrets = secrets
        self._folder = folder
        self._pipe = pipe
        self._loop = loop
        self._record = record
        self._pid = -1
        self._waiting: list[Callable[[], None]] = []
        self._announced: str | None = None
        self.answer: dict[str, Any] | None = None

    def start(self) -> None:
        """Start it if the run is tracked. If that fails, the run goes on without."""
        request = self._spec["tracker"]
        if request is None:
            return
        log = os.path.join(self._folder, "tracker.log")
        own = {**self._spec["env"], **self._secrets}
        credentials = {name: own[name] for name in request.get("credentials", ()) if name in own}
        whole = {**os.environ, **credentials, **request["env"], "SGPU_RUN_DIR": self._folder,
                 "SGPU_RESTART": str(self._record.snapshot["restart"]),
                 "SGPU_TRACKER": self._spec["token"]}  # fmt: skip
        environment, rest = split_secrets(whole, self._secrets)
        try:
            pid, failure = spawn(
                request["argv"], environment, cwd="/", logs=(log, log), reset=self._loop.close,
                stdin=self._pipe, keep=rest, raise_oom_score=False, guarded=False,
            )  # fmt: skip
        except LaunchError as error:
            self._record.event("tracker_failed", reason=str(error))
            self._refuse(f"the tracker could not be started: {error}")
            return
        finally:
            os.close(rest)
        os.close(failure)
        self._pid = pid
        self._record.event("tracker_started", pid=pid)
        self._loop.watch(pid, self._ended)
        self._loop.after("tracker_patience", _PATIENCE, self._give_up)
        self._look()

    @property
    def pids(self) -> set[int]:
        """The tracker and its descendants, which are not of the ranks."""
        return {self._pid, *processes.descendants(self._pid)} if self._pid > 0 else set()

    @property
    def variables(self) -> dict[str, str]:
        """The variables of the MLflow run, for ranks; empty while there is no answer."""
        env = (self.answer or {}).get("env")
        return (
            {str(name): str(value) for name, value in env.items()} if isinstance(env, dict) else {}
        )

    def await_answer(
        self, then: Callable[[], None], *, announce: bool, limit: float | None = None
    ) -> None:
        """Call `then` once there is an answer, or after `limit` seconds; at once if nothing is
        tracked. With `announce`, the status says what the attempt waits for."""
        if self._pid < 0 or self.answer is not None:
            then()
            return
        self._waiting.append(then)
        if announce:
            self._loop.after("tracker_awaited", _SHORT, self._announce)
        if limit is not None:
            self._loop.after("tracker_limit", limit, self._go_on)

    def _look(self) -> None:
        self.answer = attempt_files.read_json(self._folder, TRACKED)
        if self.answer is None:
            self._loop.after("tracker", _LOOK, self._look)
            return
        for timer in ("tracker", "tracker_patience"):
            self._loop.cancel(timer)
        self._record.update(
            mlflow={name: self.answer[name] for name in _SHOWN if name in self.answer}
        )
        if self._announced and self._record.snapshot["waiting_for"] == self._announced:
            self._record.update(waiting_for=None)
        self._go_on()

    def _go_on(self) -> None:
        for timer in ("tracker_awaited", "tracker_limit"):
            self._loop.cancel(timer)
        waiting, self._waiting = self._waiting, []
        for then in waiting:
            then()

    def _announce(self) -> None:
        doing = attempt_files.read_json(self._folder, TRACKER) or {}
        what = str(doing.get("waiting_for") or "MLflow")
        if self._record.snapshot["waiting_for"] != what:
            self._announced = what
            self._record.update(waiting_for=what)
            self._record.event("waiting", reason=what)
        self._loop.after("tracker_awaited", _SHORT, self._announce)

    def _give_up(self) -> None:
        """Kill a tracker that takes too long, and go on without it."""
        self._record.event("tracker_gave_up", seconds=_PATIENCE)
        self._refuse(f"the tracker made no run within {_PATIENCE:g} s; see `tracker.log`")
        processes.send_signal(self._pid, processes.start_time(self._pid), signal.SIGKILL)

    def _refuse(self, why: str) -> None:
        """Write the answer that there is no run, in place of the tracker."""
        try:
            attempt_files.write_atomic(self._folder, TRACKED, attempt_files.encode({"error": why}))
        except OSError as error:
            self._record.event("tracker_not_recorded", reason=str(error))
        self._look()

    def _ended(self, status: int, _now: int) -> None:
        self._pid = -1
        code = os.waitstatus_to_exitcode(status)
        self._record.event("tracker_ended", exit_code=code)
        if self.answer is None and attempt_files.read_json(self._folder, TRACKED) is None:
            self._refuse(f"the tracker ended with exit code {code}; see `tracker.log`")
