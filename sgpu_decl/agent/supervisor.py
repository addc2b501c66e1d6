"""Carries one attempt from the queue to its outcome.

    queued ─▶ starting ─▶ running ─▶ (stopping) ─▶ sweep ─┬─▶ outcome
                 ▲                                        │
                 └────────────── backoff ◀────────────────┘  `retry`

Everything happens in callbacks of one loop; nothing here blocks for longer than a file takes.
"""

from __future__ import annotations

import errno
import os
import signal
import time
from binascii import crc32

from sgpu_decl.agent import processes, records
from sgpu_decl.agent.bounding import LogBound
from sgpu_decl.agent.cgroup import fill_cgroup, kill_cgroup, remove_cgroup
from sgpu_decl.agent.group import RankGroup
from sgpu_decl.agent.loop import Loop
from sgpu_decl.agent.nodes import FIRST, Node, join_team
from sgpu_decl.agent.ports import claim_port
from sgpu_decl.agent.progress import Progress
from sgpu_decl.agent.report import Report
from sgpu_decl.agent.spawning import LaunchError, spawn
from sgpu_decl.agent.verdict import Ending, Verdict, blames_the_user
from sgpu_decl.agent.waiting import Slots, Waiters, wait_for_ends

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

__all__ = ["Supervisor"]

# How long a collateral failure waits for its culprit before the others are told. A primary failure
# waits for nothing, so this delays no ordinary stop; busy cores can hold a culprit up this long.
_SETTLE = 0.2
_SHORT_GRACE = 3.0
_SWEEP_GRACE = 5.0
_TRACKER_WAIT = 10.0
_SCARCE = frozenset({errno.EAGAIN, errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOSPC})
_EXIT_OF = {"cancelled": 130, "timeout": 124, "hung": 124}


class Supervisor:
    """`tracker_pipe` is the read end of the pipe whose closing tells the tracker to finish. The
    records of a node that is not the first lie in a folder of its own."""

    def __init__(
        self,
        spec: dict[str, Any],
        secrets: dict[str, str],
        tracker_pipe: int,
        node: Node = FIRST,
        cgroup: str = "",
    ) -> None:
        self._spec = spec
        self._cgroup = cgroup
        self._node = node
        self._folder = node.records(spec["run_dir"])
        self._tracker_pipe = tracker_pipe
        self._tracker_pid = -1
        self._tracked_env: dict[str, str] = {}
        self._done = False
        self._stop: str | None = None  # why the ranks are told to stop; the first reason stays
        self._timed_out = False
        self._signals = 0
        self._restart = 0
        self._slots: list[Slots] = []
        self._sweeping = False
        self._swept_all = False
        self._lost_node: tuple[str, int] | None = None  # what is said of it, and when it was lost
        must_wait = spec["gpus"]["need"] or spec["parallel"] or spec["wait_for"]
        count = node.count if spec["per"] == "node" else spec["world_size"]
        self._loop = Loop(self._on_signal)
        self._waiters = Waiters(self._loop)
        self._report = Report(
            self._folder, count, "queued" if must_wait else "starting", node.count
        )
        self._team = join_team(node, self, loop=self._loop, report=self._report, spec=spec)
        self._group = RankGroup(spec, secrets, self._loop, self._report, node)
        self._group.on_started = self._all_started
        self._group.on_refused = self._launch_refused
        self._group.on_ready = self._team.ready
        self._group.on_ended = self._team.ended
        self._group.on_failure = self.rank_failed
        self._group.on_empty = self._sweep
        self._logs: LogBound | None = None
        if spec["log_limit"] is not None:
            self._logs = LogBound(
                self._loop, self._group, self._report, self._folder, spec["log_limit"]
            )
        self._progress: Progress | None = None
        if spec["progress_timeout"] is not None:
            self._progress = Progress(
                self._loop,
                self._group,
                self._folder,
                spec["progress_timeout"],
                self._hung,
            )

    def run(self, begun: Callable[[], None]) -> None:
        """Supervise until the outcome is written; `begun` is called once ranks start, or wait.

        Raises:
            OSError: it cannot be written; the guardian then says what it knows.
        """
        self._do(self._enter)
        begun()
        while not self._done:
            self._do(self._loop.turn)

    def _do(self, step: Callable[[], None]) -> None:
        try:
            step()
        except OSError as error:
            self._refused(error)
        self._report.flush()

    def _enter(self) -> None:
        if self._cancel_requested():
            self._conclude_stopped("cancelled")
        else:
            self._queue()

    def _refused(self, error: OSError) -> None:
        """The machine had no descriptor or process left for something: end what was begun.

        Raises:
            OSError: it is of another kind, or the attempt is ending already.
        """
        if error.errno not in _SCARCE or self._stop is not None or self._done:
            raise error
        self._launch_refused(LaunchError("launch_failed", str(error)))

    # ── the queue ────────────────────────────────────────────────────────────────────────────

    def _queue(self) -> None:
        if self._spec["wait_for"]:
            self._report.update(waiting_for="earlier attempts")
            wait_for_ends(self._waiters, self._spec["wait_for"], self._queue_for_turn)
        else:
            self._queue_for_turn()

    def _queue_for_turn(self) -> None:
        parallel = self._spec["parallel"]
        if parallel is None:
            self._queue_for_devices()
            return
        names = [str(number) for number in range(parallel["limit"])]
        self._wait_for(
            Slots(parallel["lock_dir"], names, 1), "max_parallel", self._queue_for_devices
        )

    def _queue_for_devices(self) -> None:
        gpus = self._spec["gpus"]
        have, need = len(gpus["devices"]), gpus["need"] // self._node.count
        if not need:
            self._begin()
        elif need > have:
            self._fail("capacity", f"{need} GPUs are needed, this machine has {have}")
        else:
            slots = Slots(gpus["lock_dir"], gpus["devices"], need)
            self._wait_for(slots, "gpus", lambda: self._begin(slots.names))

    def _wait_for(self, slots: Slots, what: str, then: Callable[[], None]) -> None:
        self._slots.append(slots)
        self._report.update(waiting_for=what)
        slots.acquire(self._waiters, then)

    # ── ranks start ──────────────────────────────────────────────────────────────────────────

    def _begin(self, devices: tuple[str, ...] = ()) -> None:
        self._report.update(waiting_for=None)
        self._report.state("starting", devices=list(devices))
        self._devices = devices
        if self._node.number == 0:
            try:
                # The lock stays held by the open descriptor until this process ends.
                self._port, self._port_lock = claim_port(
                    self._spec["port_lock_dir"], crc32(self._spec["token"].encode()),
                    self._spec["master_port"],
                )  # fmt: skip
            except OSError as error:
                self._fail("launch_failed", error.strerror or str(error))
                return
            if self._spec["timeout"] is not None:
                self._loop.after("timeout", self._spec["timeout"], self._time_out)
            self._start_tracker()
        try:
            self._team.gather(self._gathered)
        except OSError as error:
            where = f"{self._node.address}:{self._node.port}"
            self._fail("launch_failed", f"agent 0 cannot listen on {where}: {error.strerror}")

    def _gathered(self) -> None:
        if self._tracker_pid > 0 and self._spec["entry"]["kind"] in ("command", "shell"):
            self._await_tracker(time.monotonic() + _TRACKER_WAIT)
        else:
            self._start_all()
            self._share_tracker()

    def _start_tracker(self) -> None:
        tracker = self._spec["tracker"]
        if tracker is None:
            return
        log = os.path.join(self._folder, "tracker.log")
        environment = {**os.environ, **tracker["env"], "SGPU_RUN_DIR": self._folder,
                       "SGPU_TRACKER": self._spec["token"]}  # fmt: skip
        try:
            pid, told = spawn(
                tracker["argv"], environment, cwd="/", logs=(log, log), settle=self._loop.close,
                stdin=self._tracker_pipe, raise_oom_score=False, guarded=False,
            )  # fmt: skip
        except LaunchError as error:
            self._report.event("tracker_failed", reason=str(error))
            return
        os.close(told)
        self._tracker_pid = pid
        self._report.event("tracker_started", pid=pid)
        self._loop.watch(pid, self._tracker_ended)

    def _tracker_ended(self, status: int, _now: int) -> None:
        self._tracker_pid = -1
        self._report.event("tracker_ended", exit_code=os.waitstatus_to_exitcode(status))

    def _await_tracker(self, deadline: float) -> None:
        """Look for the MLflow variables that a command cannot wait for itself, 10 s at most."""
        tracked = records.read_json(self._folder, "mlflow.json")
        if tracked is None and self._tracker_pid > 0 and time.monotonic() < deadline:
            self._loop.after("tracker", 0.02, lambda: self._await_tracker(deadline))
            return
        found = tracked.get("env") if tracked else None
        if isinstance(found, dict):
            self._tracked_env = {str(name): str(value) for name, value in found.items()}
        self._start_all()

    def _share_tracker(self) -> None:
        """Let the other nodes have the MLflow run as soon as it is there."""
        if self._node.count == 1 or self._tracker_pid < 0:
            return
        tracked = records.read_json(self._folder, "mlflow.json")
        if tracked is None:
            self._loop.after("tracker", 0.05, self._share_tracker)
        else:
            self._team.tracked(tracked)

    def tracked(self, told: dict[str, Any]) -> None:
        """Put the MLflow run where the ranks of this node look for it."""
        records.write_atomic(self._spec["run_dir"], "mlflow.json", records.encode(told))

    def _start_all(self) -> None:
        if self._stop is not None:
            self._conclude_stopped(self._stop)
            return
        if self._spec["startup_timeout"] is not None:
            self._loop.after(
                "startup", self._spec["startup_timeout"], lambda: self.stop_ranks("startup")
            )
        self._team.start(self._restart, self._port, self._tracked_env)

    def start_ranks(self, restart: int, port: int, extra: Mapping[str, str]) -> None:
        """Start the ranks of this node."""
        if restart != self._restart:
            self._begin_again(restart)
        self._group.start(restart, port, self._devices, extra)

    def _all_started(self) -> None:
        if self._logs is not None:
            self._logs.begin(self._restart)
        if self._cgroup:
            fill_cgroup(self._cgroup, self._remains)

    def _launch_refused(self, error: LaunchError) -> None:
        refused = _cause(
            error.failure, str(error), rank=self._group.failed_to_start, traceback=error.traceback
        )
        if self._team.decides:
            self.rank_refused(refused)
        else:
            self._team.refused(refused)

    def rank_refused(self, cause: dict[str, Any]) -> None:
        """A rank, of this node or of another, could not be started."""
        if self._stop is None:
            self._refused_cause = cause
        self.stop_ranks("launch")

    def all_ready(self) -> None:
        self._loop.cancel("startup")
        if self._stop is None:
            self._report.state("running", restart=self._restart)
            if self._progress is not None:
                self._progress.begin(self._restart)

    def _hung(self) -> None:
        self._team.idle()
        if self._stop is None and self._progress is not None:
            self._progress.begin(self._restart)

    # ── stopping ─────────────────────────────────────────────────────────────────────────────

    def _on_signal(self, number: int) -> None:
        if number in (signal.SIGUSR1, signal.SIGUSR2):
            self._group.signal_all(number)
        elif number == signal.SIGWINCH:
            if self._cancel_requested() and self._stop != "cancelled":
                self._report.event("cancel_requested")
                self.stop_ranks("cancelled")
        else:
            self._signals += 1
            name = signal.Signals(number).name
            self._report.event("signal", name=name, count=self._signals)
            if self._signals == 1 and not self._team.decides:
                self._team.signalled(name)
            elif self._signals == 1:
                self.stop_ranks("cancelled")
            elif self._signals == 2:
                self._loop.after("kill", min(_SHORT_GRACE, self._spec["grace"]), self.kill_ranks)
            else:
                self.kill_ranks()

    def _cancel_requested(self) -> bool:
        return os.path.exists(os.path.join(self._folder, records.CANCEL))

    def _time_out(self) -> None:
        self._timed_out = True
        self.stop_ranks("timeout")

    def rank_failed(self, *, collateral: bool) -> None:
        if self._stop is None:
            delay = _SETTLE if collateral else 0.0
            self._loop.after("settle", delay, lambda: self.stop_ranks("failure"))

    def stop_ranks(self, reason: str) -> None:
        """Tell all ranks to end: TERM, then after the grace KILL. Queued attempts end at once."""
        if self._stop is not None:
            return
        self._stop = reason
        self._team.stop(reason)
        self._loop.cancel("settle")
        if self._sweeping or self._swept_all:
            return
        if not self._group.living:
            if self._group.started:
                self._sweep()
            elif self._team.decides:
                self._conclude_stopped(reason)
            return
        self._loop.cancel("progress")
        self._report.state("stopping", reason=reason)
        self._group.signal_all(signal.SIGTERM)
        self._loop.after("kill", self._spec["grace"], self.kill_ranks)

    def kill_ranks(self) -> None:
        """Wait no longer for ranks that were told to end."""
        self._loop.cancel("kill")
        self._team.kill()
        self._group.kill_all()
        kill_cgroup(self._cgroup)
        if self._sweeping:
            self._sweep_force = True
            self._sweep_step()

    # ── after the ranks ──────────────────────────────────────────────────────────────────────

    def _sweep(self) -> None:
        """All ranks have ended: stop what they left behind, then judge."""
        for name in ("kill", "startup", "settle", "progress", "logs"):
            self._loop.cancel(name)
        if self._restart >= self._spec["retry"]["max"] or not self._group.endings():
            self._group.retire_parent(wait=False)
        self._sweeping, self._sweep_force = True, False
        self._swept: set[int] = set()
        self._sweep_watched: set[int] = set()
        self._loop.after("kill", min(self._spec["grace"], _SWEEP_GRACE), self.kill_ranks)
        self._sweep_step()

    def _sweep_step(self) -> None:
        if not self._sweeping:
            return
        try:
            left = self._remains()
        except OSError:
            self._loop.after("sweep", 0.1, self._sweep_step)  # out of descriptors: cannot see
            return
        if not left:
            self._sweeping = False
            remove_cgroup(self._cgroup)
            self._loop.cancel("kill")
            self._loop.cancel("sweep")
            self._swept_all = True
            self._team.swept()
            return
        for pid in left:
            if self._sweep_force or pid not in self._swept:
                number = signal.SIGKILL if self._sweep_force else signal.SIGTERM
                processes.tell(pid, processes.start_time(pid), number)
        if not self._swept:
            self._report.event("sweep", left=len(left))
        self._swept.update(left)
        # Orphans become our children and end with a SIGCHLD; only one whose parent still lives
        # ends unseen, so look again soon.
        self._loop.after("sweep", 0.01, self._sweep_step)

    def _remains(self) -> list[int]:
        """Return the living processes below this one, but for the tracker's and the warm parent."""
        apart = {self._tracker_pid, self._group.parent}
        apart.update(processes.descendants(self._tracker_pid) if self._tracker_pid > 0 else ())
        return [pid for pid in processes.descendants(os.getpid()) if pid not in apart]

    def judge(self) -> None:
        """All ranks have ended, here and on the other nodes: say how."""
        self._loop.cancel("settle")
        endings = [*self._group.endings(), *self._team.others()]
        verdict = Verdict(endings)
        self._report.settle(endings, verdict.failed)
        if self._lost_node and not _failed_before(verdict, self._lost_node[1]):
            self._fail("node_lost", self._lost_node[0])
        elif self._stop == "launch":
            if not self._again(self._refused_cause["class"]):
                self._conclude_stopped("launch")
        elif verdict.cause and verdict.first and self._stop in (None, "failure", "node"):
            if not self._again(verdict.cause["class"]):
                self._conclude("failed", verdict.first.code, verdict.cause)
        elif self._stop is not None and (not endings or any(map(_cut_short, endings))):
            self._conclude_stopped(self._stop)
        else:
            self._conclude("succeeded", 0, None)

    def _again(self, failure: str) -> bool:
        """Start the ranks once more, if `retry` covers this failure.

        A cancel or the timeout that came while the ranks were being stopped stands against that:
        the attempt then ends by it.
        """
        retry = self._spec["retry"]
        kind = "error" if blames_the_user(failure) else "infra"
        if self._lost_node or self._restart >= retry["max"] or kind not in retry["on"]:
            return False
        if self._signals or self._cancel_requested():
            self._conclude_stopped("cancelled")
            return True
        if self._timed_out:
            self._conclude_stopped("timeout")
            return True
        self._report.event("restart", restart=self._restart + 1, after=failure)
        self._begin_again(self._restart + 1)
        self._loop.after("backoff", retry["backoff"], self._start_all)
        return True

    def _begin_again(self, restart: int) -> None:
        self._restart = restart
        self._stop = None
        self._swept_all = False
        self._report.update(restart=restart)
        self._report.state("starting")
        self._group.reset()

    def node_lost(self, node: int, why: str) -> None:
        """Another node is gone: without it the run cannot go on."""
        if self._lost_node is None:
            self._lost_node = (f"node {node} was lost: {why}", time.monotonic_ns())
        if not self._group.started:
            self._fail("node_lost", self._lost_node[0])
        elif self._swept_all and self._node.number != 0:
            self.judge()
        else:
            self.stop_ranks("node")

    def finish(self, outcome: dict[str, Any]) -> None:
        """End as agent 0 says, once this node's ranks have."""
        self._report.settle(self._group.endings(), frozenset())
        self._conclude(outcome["state"], outcome["exit_code"], outcome["cause"])

    def _conclude_stopped(self, reason: str) -> None:
        if reason == "cancelled":
            self._conclude("cancelled", _EXIT_OF["cancelled"], None)
        elif reason == "launch":
            self._conclude("failed", 1, self._refused_cause)
        elif reason == "startup":
            limit = self._spec["startup_timeout"]
            self._fail("timeout", f"ranks were not up after the startup_timeout of {limit:g} s")
        elif reason == "hung":
            limit = self._spec["progress_timeout"]
            self._fail("hung", f"no output and no CPU time for the progress_timeout of {limit:g} s")
        else:
            limit = self._spec["timeout"]
            self._fail("timeout", f"ran longer than the timeout of {limit:g} s")

    def _fail(self, failure: str, summary: str) -> None:
        self._conclude("failed", _EXIT_OF.get(failure, 1), _cause(failure, summary))

    def _conclude(self, state: str, exit_code: int, cause: dict[str, Any] | None) -> None:
        self._done = True
        self._waiters.stop()
        self._team.finish({"state": state, "exit_code": exit_code, "cause": cause})
        self._group.retire_parent(wait=True)
        failure = cause["class"] if cause else None
        self._report.conclude(
            state=state, exit_code=exit_code, first_cause=cause, **{"class": failure}
        )
        for slots in self._slots:
            slots.release()


def _cut_short(ending: Ending) -> bool:
    """Whether a rank did not come to its own end: one that tidies up when told to exits with 0."""
    return ending.failed or ending.told_ns is not None


def _failed_before(verdict: Verdict, lost_ns: int) -> bool:
    """Whether a rank failed by itself before its node, or another, was lost."""
    first = verdict.first
    return first is not None and not first.collateral and first.time_ns < lost_ns


def _cause(
    failure: str, summary: str, rank: int | None = None, traceback: str | None = None
) -> dict[str, Any]:
    return {
        "rank": rank,
        "class": failure,
        "summary": summary,
        "traceback": traceback,
        "simultaneous": [],
    }
