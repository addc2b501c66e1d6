"""The monitor beside the driver of a Ray run, which logs the metrics of all nodes to MLflow.

`rank/ray_metrics.py` is the program; it runs in the interpreter of the run, whose MLflow it uses.
Nothing waits for it, and whatever becomes of it changes nothing for the run.
"""

from __future__ import annotations

import os

from sgpu_decl.agent.ranks.rank_start import LaunchError, exec_error, spawn
from sgpu_decl.agent.system.fast_stdlib import dumps, signal
from sgpu_decl.agent.system.secrets import memory_file, visible_variables

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from sgpu_decl.agent.attempt.attempt_record import AttemptRecord
    from sgpu_decl.agent.ranks.tracker_process import TrackerProcess
    from sgpu_decl.agent.system.loop import Loop

_RUN = "MLFLOW_RUN_ID"
_LOG = "ray_metrics.log"


class RayMetricsProcess:
    def __init__(
        self,
        spec: Mapping[str, Any],
        secrets: Mapping[str, str],
        loop: Loop,
        record: AttemptRecord,
        tracker: TrackerProcess,
    ) -> None:
        self._spec = spec
        self._secrets = secrets
        self._loop = loop
        self._record = record
        self._tracker = tracker
        self._nodes: Mapping[int, str] = {}
        self._interval = 0.0
        self._pid = -1

    def start(self, nodes: Mapping[int, str], interval: float | None) -> None:
        """Start it as soon as there is an MLflow run.

        Args:
            nodes: the metrics endpoint of each node, `host:port`, by its number.
            interval: how often they are read, in seconds; None if there is to be no MLflow run.
        """
        if interval is not None:
            self._nodes, self._interval = nodes, interval
            self._tracker.await_answer(self._begin, announce=False)

    def end(self) -> None:
        """Kill it: what it was logging may be lost."""
        self._nodes = {}
        if self._pid > 0:
            os.kill(self._pid, signal.SIGKILL)

    def _begin(self) -> None:
        environment = self._environment()
        if not self._nodes or self._pid > 0 or _RUN not in environment:
            return
        try:
            self._spawn(environment)
        except (LaunchError, OSError) as error:
            self._record.event("ray_metrics_failed", reason=str(error))

    def _spawn(self, environment: Mapping[str, str]) -> None:
        visible = visible_variables(environment, self._secrets)
        request = {
            "nodes": {str(node): address for node, address in self._nodes.items()},
            "interval": self._interval,
            "env": {name: environment[name] for name in environment.keys() - visible.keys()},
        }
        argv = [self._spec["python"], os.path.join(self._spec["run_dir"], "_air.py")]
        log = os.path.join(self._spec["run_dir"], _LOG)
        stdin = memory_file(dumps(request).encode("utf-8", "surrogateescape"))
        try:
            pid, failure = spawn(
                argv, {**visible, "SGPU_RAY_METRICS": "1"},
                cwd="/", logs=(log, log), reset=self._loop.close, stdin=stdin,
            )  # fmt: skip
        finally:
            os.close(stdin)
        self._pid = pid
        self._loop.watch(pid, self._ended)
        error = exec_error(failure, argv[0], "/")
        if error is not None:
            raise error
        self._record.event("ray_metrics_started", pid=pid)

    def _environment(self) -> dict[str, str]:
        """Return the variables of a rank that MLflow may need. A platform that makes the MLflow run
        itself says so in the variables of the agent."""
        inherited = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("SGPU_", "RAY_", "TORCHELASTIC_"))
        }
        own = {name: str(value) for name, value in self._spec["env"].items()}
        cookie = {"SGPU_COOKIE": self._spec["token"]}
        return {**inherited, **own, **self._secrets, **self._tracker.variables, **cookie}

    def _ended(self, status: int, _now: int) -> None:
        self._pid = -1
        self._record.event("ray_metrics_ended", exit_code=os.waitstatus_to_exitcode(status))
