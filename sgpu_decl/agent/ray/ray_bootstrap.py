"""The Ray cluster of a run, as agent 0 brings it up and as every node takes part in it.

    all nodes import Ray ─▶ same versions? ─▶ head ─▶ the others join ─▶ complete ─▶ the driver

An open port of the head is not enough for a join: Ray would try again in steps of 5 s. So the other
nodes join when the head says that it is ready. The cluster is complete once Ray's own table of
nodes lists all of them. The first limit begins with the import, the second one with the joins. What
a late node wrote last is asked for over the control wire.
"""

from __future__ import annotations

import os
import time

from sgpu_decl.agent.attempt.outcome import failed
from sgpu_decl.agent.ranks.rank_start import LaunchError
from sgpu_decl.agent.ray.ray_metrics_process import RayMetricsProcess
from sgpu_decl.agent.ray.ray_process import RayProcess

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any

    from sgpu_decl.agent.attempt.attempt_record import AttemptRecord
    from sgpu_decl.agent.attempt.outcome import Outcome
    from sgpu_decl.agent.ranks.tracker_process import TrackerProcess
    from sgpu_decl.agent.several_nodes.node_group import Node, Team
    from sgpu_decl.agent.system.loop import Loop
    from sgpu_decl.agent.system.secrets import Redactor

_TIMER = "ray_start"
_ANSWER = 3.0  # seconds for the last lines of a late node


class RayBootstrap:
    """On agent 0, calls back when the cluster is complete, cannot be started, or is lost."""

    on_complete: Callable[[Mapping[str, str]], None]
    on_refused: Callable[[Outcome], None]
    on_lost: Callable[[Outcome, int], None]

    def __init__(
        self,
        spec: Mapping[str, Any],
        secrets: Mapping[str, str],
        node: Node,
        team: Team,
        loop: Loop,
        record: AttemptRecord,
        redact: Redactor,
        tracker: TrackerProcess,
    ) -> None:
        self._options: Mapping[str, Any] = spec["ray"]
        self._node = node
        self._team = team
        self._loop = loop
        self._record = record
        self._process = RayProcess(spec, secrets, node, loop, record, redact, team.report_ray)
        self._monitor = RayMetricsProcess(spec, secrets, loop, record, tracker)
        self._ending = False
        self._is_complete = False
        self.active = False  # whether there is something to be ended

    def start(self, restart: int, devices: Sequence[str], inherited: Mapping[str, str]) -> None:
        """Start this node's part."""
        self._ending, self._is_complete, self.active = False, False, True
        self._versions: dict[int, tuple[str, str]] = {}
        self._metrics: dict[int, str] = {}
        self._late: str | None = None  # the summary, while lines of late nodes are awaited
        self._lines: dict[int, str | None] = {}  # of late nodes; None until they have answered
        if self._node.number == 0:
            self._show_import()
            self._loop.after(_TIMER, self._options["head_startup_timeout"], self._head_is_late)
        try:
            if self._node.unprepared is not None:
                raise LaunchError(*self._node.unprepared)
            self._process.start(restart, devices, inherited, self._team.address)
        except LaunchError as error:
            self._refuse(error)

    def end(self, then: Callable[[], None], *, keep: bool) -> None:
        """End all processes of this node, and call `then`; `keep` the logs of a failed run."""
        self._ending = True
        self._loop.cancel(_TIMER)
        self._record.update(waiting_for=None)
        self._monitor.end()
        self._process.end(then, keep=keep)

    def workers(self) -> list[int]:
        """See `RayProcess.workers`."""
        return self._process.workers()

    def remove_folder(self) -> None:
        """See `RayProcess.remove_folder`."""
        self.active = False
        self._process.remove_folder()

    def ordered(self, message: Mapping[str, Any]) -> None:
        """Do what agent 0 sent to this node."""
        if "late" in message:
            if self._node.number in message["late"]:
                self._team.report_ray({"lines": self._process.last_lines("raylet") or ""})
            return
        try:
            self._process.join(message["head"], message["folder"])
        except LaunchError as error:
            self._refuse(error)

    def _refuse(self, error: LaunchError) -> None:
        fields = {"failure": error.failure, "summary": str(error), "traceback": error.traceback}
        self._team.report_ray({"failed": fields})

    # ── agent 0 alone ────────────────────────────────────────────────────────────────────────

    def reported(self, node: int, message: Mapping[str, Any]) -> None:
        """Take what a node reported: see `ray_process`."""
        if self._ending and "lost" not in message:
            return
        if "lines" in message:
            self._take_lines(node, message["lines"])
        elif self._late is not None and not message.keys() & {"failed", "lost"}:
            return
        elif "imported" in message:
            imported = message["imported"]
            self._versions[node] = imported["ray"], imported["python"]
            self._show_import()
            if len(self._versions) == self._node.count:
                self._start_head()
        elif "ready" in message:
            self._metrics[node] = message["ready"]["metrics"]
            if len(self._metrics) == self._node.count:  # may come after `complete`
                self._monitor.start(self._metrics, self._options["metrics_interval"])
            if node == 0:
                self._head_is_ready()
            self._show_joins()
        elif "complete" in message:
            self._complete()
        elif "failed" in message:
            self._fail(**message["failed"])
        elif "lost" in message:
            lost = message["lost"]
            outcome = failed("node_lost", lost["summary"], None, lost["traceback"])
            self.on_lost(outcome, lost["time_ns"] if node == 0 else time.monotonic_ns())

    def _show_import(self) -> None:
        missing, count = self._node.count - len(self._versions), self._node.count
        where = f" on {missing} of {count} nodes" if count > 1 else ""
        self._record.update(waiting_for=f"Ray to be imported{where}")

    def _show_joins(self) -> None:
        if self._is_complete or 0 not in self._metrics:  # Ray may list a node before it says so
            return
        missing, count = self._node.count - len(self._metrics), self._node.count
        what = f"{missing} of {count} nodes to join the Ray cluster" if missing else None
        self._record.update(waiting_for=what)

    def _fail(self, failure: str, summary: str, traceback: str | None = None) -> None:
        self._loop.cancel(_TIMER)
        self.on_refused(failed(failure, summary, None, traceback))

    def _start_head(self) -> None:
        if len(set(self._versions.values())) > 1:
            each = (
                f"node {node} has Ray {ray} and Python {python}"
                for node, (ray, python) in sorted(self._versions.items())
            )
            why = f"Ray and Python must be the same on all nodes: {', '.join(each)}"
            self._fail("launch_failed_user", why)
            return
        try:
            self._process.begin_head(self._node.count)
        except LaunchError as error:
            self._refuse(error)
            return
        self._record.event("ray_head_starting")
        self._record.update(waiting_for="the head of the Ray cluster")

    def _head_is_late(self) -> None:
        limit = self._options["head_startup_timeout"]
        within = f"within the head_startup_timeout of {limit:g} s"
        missing = [number for number in range(self._node.count) if number not in self._versions]
        if missing:
            self._await_lines(f"Ray was not imported on {_nodes(missing)} {within}", missing)
            return
        text = self._process.last_lines("gcs_server", "raylet")
        self._fail("platform", f"the head of the Ray cluster was not up {within}", text)

    def _head_is_ready(self) -> None:
        self._record.event("ray_head_ready")
        self._loop.after(_TIMER, self._options["worker_join_timeout"], self._nodes_are_late)
        self._team.order_ray(self._process.invitation())

    def _nodes_are_late(self) -> None:
        limit = self._options["worker_join_timeout"]
        missing = [number for number in range(self._node.count) if number not in self._metrics]
        what = f"{_nodes(missing)} did not join the Ray cluster"
        if not missing:
            what = "the head of the Ray cluster did not count the resources of all nodes"
        summary = f"{what} within the worker_join_timeout of {limit:g} s"
        self._await_lines(summary, missing)

    def _await_lines(self, summary: str, late: Sequence[int]) -> None:
        """Fail for nodes that are late, once they have sent what they wrote last."""
        self._late, self._lines = summary, dict.fromkeys(late)
        if not late or 0 in late:
            self._fail_late()
            return
        self._loop.after(_TIMER, _ANSWER, self._fail_late)
        self._team.order_ray({"late": list(late)})

    def _take_lines(self, node: int, lines: str) -> None:
        self._lines[node] = lines
        if self._late is not None and None not in self._lines.values():
            self._fail_late()

    def _fail_late(self) -> None:
        """Fail with the lines of the first late node that has some, or else with those of node 0.

        One that cannot answer has no lines: its agent hangs, or its process wrote nothing.
        """
        summary = self._late or ""
        first = next((node for node in sorted(self._lines) if self._lines[node]), 0)
        text = self._lines.get(first) or self._process.last_lines("gcs_server")
        self._fail("platform", summary, text and f"node {first} wrote last:\n{text}")

    def _complete(self) -> None:
        self._is_complete = True
        self._loop.cancel(_TIMER)
        ray, python = self._versions[0]
        self._record.event("ray_complete", nodes=self._node.count, ray=ray, python=python)
        shown = {
            "version": ray,
            "nodes": self._node.count,
            "dashboard": self._process.dashboard,
            "token_file": self._process.token_path,
            "host": os.uname().nodename,
        }
        self._record.update(ray=shown, waiting_for=None)
        self.on_complete(self._process.driver_variables())


def _nodes(numbers: Sequence[int]) -> str:
    return ", ".join(f"node {number}" for number in numbers)
