"""Carries one attempt from the queue to its outcome.

    queued ─▶ starting ─▶ running ─▶ (stopping) ─▶ sweep ─┬─▶ outcome
                 ▲                                        │
                 └────────────── backoff ◀────────────────┘  `retry`

Everything happens in callbacks of one loop, and nothing here waits, except for files.
"""

from __future__ import annotations

import errno
import os
import time
from binascii import crc32

from sgpu_decl.agent.attempt import attempt_files
from sgpu_decl.agent.attempt.attempt_record import AttemptRecord
from sgpu_decl.agent.attempt.host_record import BEAT
from sgpu_decl.agent.attempt.metrics_file import last_metrics
from sgpu_decl.agent.attempt.outcome import CANCELLED, Outcome, failed, judged, restarts, stopped
from sgpu_decl.agent.attempt.previous_output import working_files
from sgpu_decl.agent.attempt.verdict import Verdict
from sgpu_decl.agent.host.attempt_queue import AttemptQueue
from sgpu_decl.agent.host.ports import claim_port, port_failure
from sgpu_decl.agent.monitor.monitor_process import MonitorProcess
from sgpu_decl.agent.ranks.rank_group import RankGroup
from sgpu_decl.agent.ranks.rank_start import LaunchError
from sgpu_decl.agent.ranks.tracker_process import TrackerProcess
from sgpu_decl.agent.retry_rule import pause_before, starts_left
from sgpu_decl.agent.several_nodes.node_group import FIRST, Node, join_team
from sgpu_decl.agent.supervision.idle_watch import IdleWatch
from sgpu_decl.agent.supervision.log_limit import LogBound
from sgpu_decl.agent.supervision.orphans import Sweep
from sgpu_decl.agent.supervision.watches import HangAlarm, HangDetector, leave_stacks, watch_caller
from sgpu_decl.agent.system.cgroup import fill_cgroup, kill_cgroup, remove_cgroup
from sgpu_decl.agent.system.fast_stdlib import signal, signal_name
from sgpu_decl.agent.system.kernel_features import in_words, shortcomings
from sgpu_decl.agent.system.loop import Loop
from sgpu_decl.agent.system.process_tree import ProcessTree, rank_marks
from sgpu_decl.agent.system.secrets import Redactor

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from sgpu_decl.agent.attempt.host_record import HostRecord
    from sgpu_decl.agent.ranks.preflight import Preflight
    from sgpu_decl.agent.ray.ray_bootstrap import RayBootstrap

# Seconds between a collateral failure and the stop of the other ranks: the rank that caused it may
# be this late on busy cores. A primary failure stops them at once.
_SETTLE = 0.2
_SHORT_GRACE = 3.0
_ANSWER = 30.0  # seconds that an attempt whose ranks have ended waits for its tracker
_NOTICED = 2_000_000_000  # ns: a driver notices the end of its Ray node so much earlier at most
_TOUCH = 6 * 3600.0  # seconds
_LOOK = 2.0  # seconds between two looks at the folder if the kernel does not report deletions
_SCARCE = frozenset({errno.EAGAIN, errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOSPC})


class Supervisor:
    """`tracker_pipe` is for the `TrackerProcess`."""

    def __init__(
        self,
        spec: dict[str, Any],
        secrets: dict[str, str],
        tracker_pipe: int,
        node: Node = FIRST,
        cgroup: str = "",
        host_record: HostRecord | None = None,
    ) -> None:
        self._spec = spec
        self._cgroup = cgroup
        self._host_record = host_record
        self._node = node
        self._folder = node.records(spec["run_dir"])
        self._mlflow_variables: dict[str, str] = {}
        self._done = False
        self._stop: str | None = None  # why the ranks are stopped; the first reason stays
        self._timed_out = False
        self._abandoned = False
        self._deleted = False  # whether somebody deleted the attempt folder
        self._signals = 0
        self._restart = node.restart
        self._swept_all = False
        self._refusal: Outcome | None = None  # the outcome of a rank that could not be started
        self._lost_node: tuple[Outcome, int] | None = None  # and the time
        self._lost_ray: tuple[Outcome, int] | None = None  # a Ray node, of a machine that lives
        self._killed = False  # the ranks, and with their control group all else
        count = spec["world_size"]
        if spec["per"] == "node":
            count = 1 if spec.get("ray") else node.count
        self._loop = Loop(self._on_signal)
        first_state = "queued" if AttemptQueue.waits(spec) else "starting"
        self._record = AttemptRecord(self._folder, count, first_state, node.count)
        self._record.update(restart=node.restart)
        self._queue = AttemptQueue(spec, node.count, self._loop, self._record)
        self._queue.on_turn = self._begin
        self._queue.on_refused = lambda *why: self._refuse(failed(*why))
        self._tracker = TrackerProcess(
            spec, secrets, self._folder, tracker_pipe, self._loop, self._record
        )
        self._monitor = MonitorProcess(spec, self._folder, node, self._loop, self._record)
        tree = ProcessTree(rank_marks(spec["token"], node.number))
        self._sweep = Sweep(
            tree, self._loop, self._record,
            lambda: {self._group.parent, *self._tracker.pids, *self._monitor.pids},
        )  # fmt: skip
        self._sweep.on_clean = self._clean
        self._team = join_team(node, self, loop=self._loop, record=self._record, spec=spec)
        self._group = RankGroup(spec, secrets, self._loop, self._record, node, tree)
        self._group.on_started = self._all_started
        self._group.on_refused = self._launch_refused
        self._group.on_ready = self._team.ready
        self._group.on_ended = self._team.ended
        self._group.on_failure = self.rank_failed
        self._group.on_empty = self._all_ended
        self._preflight: Preflight | None = None
        if spec["preflight"] is not None:
            self._preflight = self._make_preflight(tree)
        self._hangs = HangAlarm(
            self._record, lambda: self.leave_stacks(lambda: self.stop_ranks("hung"))
        )
        self._monitor.on_message = self._hear_monitor
        self._ray: RayBootstrap | None = None
        if spec.get("ray"):
            self._ray = self._make_ray_bootstrap(secrets)
        self._logs: LogBound | None = None
        if spec["log_limit"] is not None:
            self._logs = LogBound(
                self._loop, self._group, self._record, spec["run_dir"], spec["log_limit"]
            )
        self._idle: IdleWatch | None = None
        if spec["idle"] is not None:
            self._idle = IdleWatch(
                spec["idle"], self._folder, self._loop, self._record, self._team.idle
            )
        self._progress: HangDetector | None = None
        if spec["progress_timeout"] is not None:
            self._progress = HangDetector(
                self._loop, self._group, spec["run_dir"], spec["progress_timeout"], self._hung,
                self._hangs.hold, *([self._ray.workers] if self._ray is not None else []),
            )  # fmt: skip

    def run(self, begun: Callable[[], None]) -> None:
        """Supervise until the outcome is written; `begun` is called once ranks start, or wait.

        Raises:
            OSError: it cannot be written; the guardian then writes one.
        """
        self._do(self._enter)
        begun()
        while not self._done:
            self._do(self._loop.turn)

    def _do(self, step: Callable[[], None]) -> None:
        try:
            step()
        except OSError as error:
            self._end_if_scarce(error)
        self._record.flush()

    def _enter(self) -> None:
        self._beat()
        self._report_shortcomings()
        self._watch_folder()
        if self._cancel_requested():
            self._conclude(CANCELLED)
            return
        if self._spec["tether"] is not None and self._node.number == 0:
            watch_caller(self._spec["tether"], self._loop, self._abandon)
        if not self._done:
            self._team.await_turn(self._queue.enter)

    def _beat(self) -> None:
        """Write a sign of life from time to time."""
        if self._host_record is not None:
            self._host_record.beat()
            self._loop.after("beat", BEAT, self._beat)

    def _report_shortcomings(self) -> None:
        """Say which features the kernel lacks, and what that costs this run."""
        lacking = shortcomings()
        for name, error, cost in lacking:
            self._record.event("kernel_lacks", feature=name, errno=error, cost=cost)
        if lacking:
            attempt_files.say(in_words(lacking))

    def _watch_folder(self) -> None:
        try:
            self._record.watch_folder(attempt_files.SUPERVISOR_LOCK)
        except OSError as error:
            self._record.event("folder_not_watched", reason=str(error))
            self._loop.after("home", _LOOK, self._look_again)

    def _look_again(self) -> None:
        self._look_at_folder()
        self._loop.after("home", _LOOK, self._look_again)

    def _look_at_folder(self) -> None:
        """Stop the ranks if somebody deleted the attempt folder: the next apply would start others
        beside them."""
        if self._deleted or not self._team.decides or not self._record.folder_deleted:
            return
        self._deleted = True
        attempt_files.say("the folder of this attempt was deleted: its ranks are stopped")
        self.stop_ranks("deleted")

    def _end_if_scarce(self, error: OSError) -> None:
        """End the attempt if the machine has no descriptor, process or space left.

        Raises:
            OSError: the error is another one, or the attempt is ending already.
        """
        if error.errno not in _SCARCE or self._stop is not None or self._done:
            raise error
        self._launch_refused(LaunchError("launch_failed", str(error)))

    # ── ranks start ──────────────────────────────────────────────────────────────────────────

    def _begin(self, devices: tuple[str, ...]) -> None:
        self._record.state("starting", devices=list(devices))
        self._devices = devices
        self._loop.after("locks", _TOUCH, self._touch_locks)
        if self._node.number == 0:
            try:
                # The lock stays held by the open descriptor until this process ends.
                self._port, self._port_lock = claim_port(
                    self._spec["port_lock_dir"], crc32(self._spec["token"].encode()),
                    self._spec["master_port"],
                )  # fmt: skip
            except OSError as error:
                failure = port_failure(error, self._spec["master_port"])
                self._conclude(failed(failure, error.strerror or str(error)))
                return
            self._tracker.start()
        try:
            self._team.gather(self._gathered)
        except OSError as error:
            self._conclude(failed("launch_failed", f"its ranks cannot start: {error.strerror}"))

    def _touch_locks(self) -> None:
        """Keep the files of our locks: systemd-tmpfiles deletes what is older than ten days."""
        self._queue.touch()
        if self._node.number == 0:
            os.utime(self._port_lock)
        self._loop.after("locks", _TOUCH, self._touch_locks)

    def _gathered(self) -> None:
        if self._spec["timeout"] is not None:
            self._loop.after("timeout", self._spec["timeout"], self._time_out)
        if self._group.python:
            self._start_all()
            if self._node.count > 1:
                self._tracker.await_answer(self._send_tracking, announce=False)
        else:
            self._tracker.await_answer(self._start_commands, announce=True)

    def _start_commands(self) -> None:
        self._mlflow_variables = self._tracker.variables
        self._start_all()

    def _send_tracking(self) -> None:
        if self._tracker.answer is not None:
            self._team.send_tracking(self._tracker.answer)

    def write_tracking(self, answer: dict[str, Any]) -> None:
        """Write the MLflow run to the file that the ranks of this node read."""
        data = attempt_files.encode(answer)
        attempt_files.write_atomic(self._spec["run_dir"], attempt_files.TRACKED, data)

    def _start_all(self) -> None:
        if self._stop is not None:
            self._conclude(stopped(self._stop, self._spec, self._refusal))
            return
        self._record.update(waiting_for=None)
        if self._spec["startup_timeout"] is not None:
            self._loop.after(
                "startup", self._spec["startup_timeout"], lambda: self.stop_ranks("startup")
            )
        self._team.start(self._restart, self._port, self._mlflow_variables)

    def start_ranks(
        self, restart: int, port: int, extra: Mapping[str, str], *, own_output: bool
    ) -> None:
        """Start the ranks of this node.

        Raises:
            OSError: the attempt's folder is gone; ranks would make it again, or run in another one.
        """
        self._record.check_folder()
        if restart != self._restart:
            self._begin_again(restart)
        extra = {**self._monitor.variables(), **extra}

        def start() -> None:
            if self._idle is not None:
                self._idle.begin()
            if self._ray is None:
                self._group.start(restart, port, self._devices, extra, own_output=own_output)
                return
            self._monitor.begin(restart, {}, self._devices)
            self._extra, self._own_output = extra, own_output
            self._ray.start(restart, self._devices, os.environ)

        if self._preflight is None or self._node.unprepared is not None:
            start()  # which says what the node lacks
        else:
            self._preflight.begin(restart, self._devices, {**os.environ, **extra}, start)

    def _make_preflight(self, tree: ProcessTree) -> Preflight:
        from sgpu_decl.agent.ranks.preflight import Preflight

        preflight = Preflight(self._spec, self._folder, self._node, self._loop, self._record, tree)
        preflight.on_refused = self._launch_refused
        return preflight

    def _make_ray_bootstrap(self, secrets: dict[str, str]) -> RayBootstrap:
        from sgpu_decl.agent.ray.ray_bootstrap import RayBootstrap

        bootstrap = RayBootstrap(
            self._spec, secrets, self._node, self._team, self._loop, self._record,
            Redactor(secrets.values()), self._tracker,
        )  # fmt: skip
        bootstrap.on_complete = self._start_driver
        bootstrap.on_refused = self.rank_refused
        bootstrap.on_lost = self._ray_lost
        return bootstrap

    def _start_driver(self, cluster: Mapping[str, str]) -> None:
        if self._stop is None:
            self._group.start(
                self._restart, self._port, self._devices, self._extra, cluster,
                own_output=self._own_output,
            )  # fmt: skip

    def ray_reported(self, node: int, message: Mapping[str, Any]) -> None:
        """A node of the Ray cluster sent a message to agent 0."""
        if self._ray is not None:
            self._ray.reported(node, message)

    def ray_ordered(self, message: Mapping[str, Any]) -> None:
        """Agent 0 sent a message to the Ray node of this machine."""
        if self._ray is not None:
            self._ray.ordered(message)
        if self._progress is not None:
            self._progress.begin(self._restart)  # its tasks may work while the driver waits

    def _ray_lost(self, outcome: Outcome, time_ns: int) -> None:
        """A node of the Ray cluster has ended, though its machine lives. A driver notices that too,
        and may have failed by it before we heard of it."""
        if self._killed:
            return  # it was killed together with the driver, and its end was seen first
        ended = self._group.started and not self._group.living
        if ended and not any(ending.failed for ending in self._group.endings()):
            return  # the driver had what it needed
        if self._lost_ray is None:
            self._lost_ray = (outcome, time_ns - _NOTICED)
        self.stop_ranks("cluster")

    def _all_started(self) -> None:
        self._monitor.begin(self._restart, self._group.living, self._devices)
        if self._logs is not None:
            self._logs.begin(self._restart)
        if self._cgroup:
            fill_cgroup(self._cgroup, self._sweep.remains)

    def _launch_refused(self, error: LaunchError) -> None:
        rank = self._group.failed_to_start
        self._refuse(failed(error.failure, str(error), rank, error.traceback))

    def _refuse(self, refusal: Outcome) -> None:
        if self._team.decides:
            self.rank_refused(refusal)
        else:
            self._team.refused(refusal)

    def rank_refused(self, refusal: Outcome, reason: str = "launch") -> None:
        """A rank, of this node or of another, could not be started, or the attempt is idle."""
        if self._stop is None:
            self._refusal = refusal
        self.stop_ranks(reason)

    def all_ready(self) -> None:
        self._loop.cancel("startup")
        if self._stop is None:
            self._record.state("running", restart=self._restart)
            if self._progress is not None:
                self._progress.begin(self._restart)

    def leave_stacks(self, then: Callable[[], None] = lambda: None) -> None:
        """Have ranks write where they are, of this node and of those that it decides for."""
        self._team.leave_stacks()
        leave_stacks(self._group, self._loop, self._spec["run_dir"], self._restart, then)

    def _hung(self) -> None:
        self._team.stalled()
        if self._stop is None and self._progress is not None:
            self._hangs.go_on()
            self._progress.begin(self._restart)

    def _hear_monitor(self, message: dict[str, Any]) -> None:
        if self._node.number:
            self._team.report_monitor(message)
        elif self._stop is None:
            self._hangs.hear(message)

    def monitor_reported(self, node: int, message: Mapping[str, Any]) -> None:
        """The monitor of another node sent what it sees."""
        self._monitor.send({"node": node, **message})

    # ── stopping ─────────────────────────────────────────────────────────────────────────────

    def _on_signal(self, number: int) -> None:
        if number in (signal.SIGUSR1, signal.SIGUSR2):
            self._group.signal_all(number)
        elif number == signal.SIGIO:
            self._look_at_folder()
        elif number == signal.SIGWINCH:
            self._beat()
            if self._cancel_requested() and self._stop != "cancelled":
                self._record.event("cancel_requested")
                if self._team.decides:
                    self.stop_ranks("cancelled")
                else:
                    self._team.signalled("cancel")
        else:
            self._signals += 1
            name = signal_name(number)
            self._record.event("signal", name=name, count=self._signals)
            if self._signals == 1 and not self._team.decides:
                self._team.signalled(name)
            elif self._signals == 1:
                self.stop_ranks("cancelled")
            elif self._signals == 2:
                self._loop.after("kill", min(_SHORT_GRACE, self._spec["grace"]), self.kill_ranks)
            else:
                self.kill_ranks()

    def _cancel_requested(self) -> bool:
        return os.path.exists(os.path.join(self._folder, attempt_files.CANCEL))

    def _abandon(self) -> None:
        """The process that this attempt is tied to has ended."""
        self._abandoned = True
        self._record.event("caller_gone", pid=self._spec["tether"]["pid"])
        self.stop_ranks("caller_gone")

    def _time_out(self) -> None:
        self._timed_out = True
        self.stop_ranks("timeout")

    def rank_failed(self, *, collateral: bool) -> None:
        if self._stop is None:
            delay = _SETTLE if collateral else 0.0
            self._loop.after("late_failures", delay, lambda: self.stop_ranks("failure"))

    def stop_ranks(self, reason: str) -> None:
        """Stop all ranks: TERM, then after the grace KILL. A queued attempt ends at once."""
        if self._stop is not None:
            return
        self._stop = reason
        if self._ray is None:  # else its driver may still need the other nodes
            self._team.stop(reason)
        self._loop.cancel("late_failures")
        if self._preflight is not None:
            self._preflight.forget()
        if self._sweep.active or self._swept_all:
            return
        if not self._group.living:
            if self._launched:
                self._all_ended()
            elif self._team.decides:
                self._conclude(stopped(reason, self._spec, self._refusal))
            return
        self._loop.cancel("progress")
        self._record.state("stopping", reason=reason)
        self._group.signal_all(signal.SIGTERM)
        self._loop.after("kill", self._spec["grace"], self.kill_ranks)

    @property
    def _launched(self) -> bool:
        """Whether something was started on this node that has to be ended."""
        checked = self._preflight is not None and self._preflight.begun
        return checked or self._group.started or (self._ray is not None and self._ray.active)

    def kill_ranks(self) -> None:
        """Kill the ranks that are still there."""
        self._loop.cancel("kill")
        self._killed = True
        self._team.kill()
        self._group.kill_all()
        kill_cgroup(self._cgroup)
        self._sweep.force()

    # ── after the ranks ──────────────────────────────────────────────────────────────────────

    def _all_ended(self) -> None:
        """All ranks have ended: stop the processes that they left, then judge."""
        for name in ("kill", "startup", "progress", "idle", "logs"):
            self._loop.cancel(name)
        if not self._team.decides:
            self._loop.cancel(
                "late_failures"
            )  # agent 0 still needs it for the ranks of other nodes
        left = starts_left(self._spec["retry"], self._restart + 1)
        if not left or not self._group.endings():
            self._group.retire_parent(wait=False)
        if self._ray is None:
            self._monitor.finish(self._begin_sweep)
            return
        failed = any(ending.failed for ending in self._group.endings())
        reason = self._stop or ("failure" if failed else "ended")
        self._team.stop(reason)
        end = self._ray.end
        self._monitor.finish(
            lambda: end(self._begin_sweep, keep=reason not in ("ended", "cancelled"))
        )

    def _begin_sweep(self) -> None:
        self._sweep.begin(self._spec["grace"], self.kill_ranks)

    def _clean(self) -> None:
        remove_cgroup(self._cgroup)
        if pids := self._sweep.remains():
            self._record.event("left_running", pids=pids, reason="they are another user's")
        self._swept_all = True
        self._team.swept()

    def judge(self) -> None:
        """All ranks have ended, here and on the other nodes: find the outcome."""
        self._loop.cancel("late_failures")
        endings = [*self._group.endings(), *self._team.others()]
        verdict = Verdict(endings)
        self._record.note_failed(endings, verdict.failed)
        outcome = judged(
            verdict, endings, self._spec,
            stop=self._stop, refusal=self._refusal, lost=self._lost_node or self._lost_ray,
            hang=self._hangs.wait,
        )  # fmt: skip
        if self._lost_node is not None or not self._again(outcome):
            # A short run waits for its tracker, so that the outcome names the MLflow run, or says
            # why there is none.
            self._tracker.await_answer(
                lambda: self._conclude(outcome), announce=True, limit=_ANSWER
            )

    def _again(self, outcome: Outcome) -> bool:
        """Start the ranks once more on their nodes if `retry` covers this outcome; return whether
        the attempt goes on or has ended.

        If a cancel, the end of the caller or the timeout came while the ranks were being stopped,
        the attempt ends by that.
        """
        retry, cause = self._spec["retry"], outcome.cause
        if cause is None or not restarts(outcome, retry, self._restart):
            return False
        if (end := self._requested_end()) is not None:
            self._conclude(end)
            return True
        self._begin_again(self._restart + 1)
        pause = pause_before(self._restart, retry)
        self._record.restart(self._restart, cause, pause)
        self._loop.after("backoff", pause, self._start_all)
        return True

    def _requested_end(self) -> Outcome | None:
        """The outcome of an attempt whose end somebody or something has asked for meanwhile."""
        if self._deleted:
            return stopped("deleted", self._spec, None)
        if self._signals or self._stop == "cancelled" or self._cancel_requested():
            return CANCELLED
        if self._abandoned:
            return stopped("caller_gone", self._spec, None)
        return stopped("timeout", self._spec, None) if self._timed_out else None

    def _begin_again(self, restart: int) -> None:
        if self._ray is not None:
            self._ray.remove_folder()
        self._restart = restart
        self._stop = None
        self._hangs.reset()
        self._lost_ray = None
        self._killed = False
        self._swept_all = False
        self._record.update(restart=restart)
        self._record.state("starting")
        self._group.reset()
        if self._preflight is not None:
            self._preflight.begun = False

    def node_lost(self, node: int, why: str) -> None:
        """Another node is lost, so the run cannot go on."""
        if self._lost_node is None:
            outcome = failed("node_lost", f"node {node} was lost: {why}")
            self._lost_node = (outcome, time.monotonic_ns())
        if not self._launched:
            self._conclude(self._lost_node[0])
        elif self._swept_all and self._node.number != 0:
            self.judge()
        else:
            self.stop_ranks("node")

    def finish(self, outcome: Outcome) -> None:
        """End with the outcome of agent 0, once this node's ranks have ended."""
        self._record.note_failed(self._group.endings(), frozenset())
        self._conclude(outcome)

    def _conclude(self, outcome: Outcome) -> None:
        self._done = True
        self._queue.leave()
        self._team.finish(outcome)
        self._group.retire_parent(wait=True)
        failure = outcome.cause["class"] if outcome.cause else None
        self._record.conclude(
            state=outcome.state,
            exit_code=outcome.exit_code,
            first_cause=outcome.cause,
            working_files=working_files(self._spec),
            **self._monitor.last_seen(self._team.others_used),
            **last_metrics(self._spec),
            **{"class": failure},
        )
        self._queue.release()
        if self._ray is not None:
            # Gigabytes of spilled objects may lie in it: nobody waits for their end. Those of other
            # nodes may, too: all of them have ended.
            self._ray.remove_folder()
