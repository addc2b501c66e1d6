"""The ranks of one restart: they are started and signalled together, and each end is noted."""

from __future__ import annotations

import os
import time

from sgpu_decl.agent.attempt.attempt_files import encode
from sgpu_decl.agent.attempt.error_file import (
    end_of_log,
    own_frames_left_out,
    read_abort,
    read_error,
    read_out_of_memory,
    read_stack,
    shared_run_named,
)
from sgpu_decl.agent.attempt.previous_output import previous_output
from sgpu_decl.agent.attempt.verdict import RankEnding, Verdict
from sgpu_decl.agent.ranks.rank_start import (
    LaunchError,
    argv_of,
    exec_error,
    rank_environment,
    rank_folder,
    shared_environment,
    spawn,
    start_error,
    write_parameters,
)
from sgpu_decl.agent.ranks.warm_parent import WarmParent
from sgpu_decl.agent.system.fast_stdlib import signal
from sgpu_decl.agent.system.kernel_log import gpu_error, kernel_records
from sgpu_decl.agent.system.oom import OomKills, shortage
from sgpu_decl.agent.system.secrets import Redactor

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from sgpu_decl.agent.attempt.attempt_record import AttemptRecord
    from sgpu_decl.agent.several_nodes.node_group import Node
    from sgpu_decl.agent.system.loop import Loop
    from sgpu_decl.agent.system.process_tree import ProcessTree


def load_failure_kinds() -> Callable[..., dict[str, Any]]:
    """What knows the kinds of failures."""
    from sgpu_decl.agent.attempt.failure_recognition import kind_of_failure

    return kind_of_failure


def load_command_error() -> Callable[..., dict[str, Any] | None]:
    """What reads why a command failed. Its import takes as long as the start of a rank."""
    from sgpu_decl.agent.ranks.command_error import read_command_error

    return read_command_error


class RankGroup:
    """Starts the ranks of one node, and calls back when they start, are refused, are ready, end,
    fail, and are all gone."""

    on_started: Callable[[], None]
    on_refused: Callable[[LaunchError], None]
    on_ready: Callable[[], None]
    on_ended: Callable[[RankEnding], None]
    on_failure: Callable[..., None]
    on_empty: Callable[[], None]

    def __init__(
        self,
        spec: dict[str, Any],
        secrets: dict[str, str],
        loop: Loop,
        record: AttemptRecord,
        node: Node,
        tree: ProcessTree,
    ) -> None:
        self._spec = spec
        self._tree = tree
        self._node = node
        self._ranks = node.ranks(spec)
        self._secrets = secrets
        self._redact = Redactor(secrets.values())
        self._loop = loop
        self._record = record
        self._ready_pipe = -1
        self.python = spec["entry"]["kind"] not in ("command", "shell")
        self._read_command_error: Callable[..., dict[str, Any] | None] | None = None
        self._kind_of_failure: Callable[..., dict[str, Any]] = lambda *_: {}
        self._warm = WarmParent(spec, node.records(spec["run_dir"]), loop, record)
        self._warm.on_forked = self._forked
        self._warm.on_cold = self._start_cold
        self._warm.on_refused = lambda error: self.on_refused(error)
        self.reset()

    def reset(self) -> None:
        """Forget the ranks of the last restart, and what they may still write to their pipe."""
        self._loop.forget(self._ready_pipe)
        self.living: dict[int, int] = {}
        self._started_ns: dict[int, int] = {}
        self.started = False
        self.failed_to_start: int | None = None
        self._endings: list[RankEnding] = []
        self._term_ns: int | None = None
        self._kill_ns: int | None = None
        self._ready_ranks: set[int] = set()

    def start(
        self,
        restart: int,
        port: int,
        devices: tuple[str, ...],
        extra: Mapping[str, str],
        cluster: Mapping[str, str] | None = None,
        *,
        own_output: bool,
    ) -> None:
        """Start all ranks, forked from a warm parent if there is one.

        With `own_output`, an earlier start of this attempt left files, here or on another node.
        `cluster` are the variables that lead to the run's Ray cluster, whose driver this starts.
        Calls `on_started` once all run, or `on_refused(error)`; some may then live all the same.
        """
        self.started = True
        if self._node.unprepared is not None:
            self.on_refused(LaunchError(*self._node.unprepared))
            return
        try:
            write_parameters(self._spec)
        except LaunchError as error:
            self.on_refused(error)
            return
        self._restart = restart
        # Once for all: the first rank may write to its output before the last one starts.
        resumes = self._spec.get("resume")
        self._previous = previous_output(self._spec, own=own_output) if resumes else None
        if self._spec.get("ray_driver"):
            from sgpu_decl.agent.ranks.ray_environment import existing_cluster

            cluster = existing_cluster(self._spec, os.environ)
        self._cluster = cluster
        self._oom_kills = OomKills()
        self._port, self._devices, self._inherited = port, devices, {**os.environ, **extra}
        if cluster is not None:
            from sgpu_decl.agent.ranks.ray_environment import without_outer_ray

            self._inherited = without_outer_ray(self._inherited)
        if self._warm.usable:
            common = shared_environment(self._environment(self._ranks[0]), self._secrets)
            self._warm.fork(common, self._request_fork)
        else:
            self._start_cold()

    def _start_cold(self) -> None:
        pipes: list[tuple[int, int]] = []
        failure: LaunchError | None = None
        readied = -1
        try:
            argv = argv_of(self._spec)
            readied = self._open_ready()
            for rank in self._ranks:
                self.failed_to_start = rank
                pipes.append((rank, self._start_one(argv, rank, readied)))
        except LaunchError as refusal:
            failure = refusal
        except OSError as refusal:
            failure = LaunchError("launch_failed", f"cannot start a rank: {refusal}")
        if readied >= 0:
            os.close(readied)
        for rank, pipe in pipes:
            error = exec_error(pipe, argv[0], self._spec["code_dir"])
            if error is not None and failure is None:
                self.failed_to_start, failure = rank, error
        if failure is not None:
            self.on_refused(failure)
            return
        self.failed_to_start = None
        self._all_run()
        if not self.python:
            self.on_ready()
            self._read_command_error = load_command_error()

    def _start_one(self, argv: list[str], rank: int, readied: int) -> int:
        environment, folder = self._prepare(rank)
        if self.python:
            environment["SGPU_READY_FD"] = str(readied)
        self._started_ns[rank] = time.monotonic_ns()
        pid, pipe = spawn(
            argv,
            environment,
            cwd=self._spec["code_dir"],
            logs=(os.path.join(folder, "stdout.log"), os.path.join(folder, "stderr.log")),
            reset=self._loop.close,
            keep=readied if self.python else None,
        )
        self._follow(rank, pid)
        return pipe

    def _request_fork(self) -> tuple[list[dict[str, str]], int, int]:
        environments = [self._prepare(rank)[0] for rank in self._ranks]
        readied = self._open_ready()
        try:
            pipe, writer = os.pipe2(os.O_CLOEXEC)
        except OSError:
            os.close(readied)
            raise
        self._loop.read(pipe, lambda: self._read_refusals(pipe))
        self._started_ns = dict.fromkeys(self._ranks, time.monotonic_ns())
        return environments, readied, writer

    def _forked(self, pids: list[int]) -> None:
        for rank, pid in zip(self._ranks, pids, strict=True):
            self._follow(rank, pid)
        self._warm.release(len(pids))
        self._all_run()

    def _all_run(self) -> None:
        """All ranks run. What reads their failures is loaded now, and not later: sgpu may be
        upgraded before they end."""
        self.on_started()
        self._kind_of_failure = load_failure_kinds()

    def _read_refusals(self, pipe: int) -> None:
        """Forked ranks write `number errno` if they cannot be set up."""
        lines = os.read(pipe, 4096).splitlines()
        if lines:
            number, code = map(int, lines[0].split())
            rank = self.failed_to_start = self._ranks[number]
            self.on_refused(start_error(code, f"`rank {rank}`"))
        self._loop.forget(pipe)

    def _prepare(self, rank: int) -> tuple[dict[str, str], str]:
        folder = rank_folder(self._spec["run_dir"], rank, self._restart)
        os.makedirs(folder, mode=0o700, exist_ok=True)
        environment = self._environment(rank)
        if self._spec["redact_logs"]:
            # The rank removes this from its environment before the user's code runs.
            environment["SGPU_REDACT"] = encode(self._redact.in_lines).decode()
        return environment, folder

    def _environment(self, rank: int) -> dict[str, str]:
        environment = rank_environment(
            self._spec,
            inherited=self._inherited,
            secrets=self._secrets,
            rank=rank,
            restart=self._restart,
            node=self._node,
            port=self._port,
            devices=self._devices,
        )
        if self._previous is not None:
            environment["SGPU_PREVIOUS_OUTPUT_DIR"] = self._previous
        if self._cluster is None:
            return environment
        from sgpu_decl.agent.ranks.ray_environment import command_environment, driver_environment

        if self.python:
            return driver_environment(environment, self._cluster)
        return command_environment(environment, self._cluster, self._spec["python"])

    def _follow(self, rank: int, pid: int) -> None:
        self.living[rank] = pid
        self._tree.start(pid)
        self._record.rank(rank, state="running", exit_code=None, signal=None, pid=pid)
        self._record.event("rank_started", rank=rank, pid=pid, restart=self._restart)
        self._loop.watch(pid, lambda status, now: self._ended(rank, status, now))

    def _open_ready(self) -> int:
        ready, readied = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._ready_pipe = ready
        self._loop.read(ready, lambda: self._read_ready(ready))
        return readied

    @property
    def parent(self) -> int:
        """The pid of the warm parent, or -1."""
        return self._warm.pid

    def retire_parent(self, *, wait: bool) -> None:
        """End the warm parent, if there is one: no restart will need it."""
        if wait:
            self._warm.finish()
        else:
            self._warm.close()

    def _read_ready(self, pipe: int) -> None:
        """Python ranks write their number just before the user's code is loaded."""
        data = os.read(pipe, 65_536)
        if not data:
            self._loop.forget(pipe)
            return
        self._ready_ranks.update(int(word) for word in data.split() if word.isdigit())
        if len(self._ready_ranks) >= len(self._ranks):
            self.on_ready()

    def signal_all(self, number: int) -> None:
        """Send a signal to every living rank's process group."""
        if number == signal.SIGTERM and self._term_ns is None:
            self._term_ns = time.monotonic_ns()
        for pid in self.living.values():
            _signal_group(pid, number)

    def kill_all(self) -> None:
        """End every living rank's process group at once."""
        if self.living and self._kill_ns is None:
            self._kill_ns = time.monotonic_ns()
            self._term_ns = self._term_ns or self._kill_ns
        for pid in self.living.values():
            _signal_group(pid, signal.SIGKILL)

    def endings(self) -> list[RankEnding]:
        return list(self._endings)

    def _ended(self, rank: int, status: int, now: int) -> None:
        pid = self.living.pop(rank)
        self._tree.end(pid)
        code = os.waitstatus_to_exitcode(status)
        folder = rank_folder(self._spec["run_dir"], rank, self._restart)
        ending = RankEnding(
            rank=rank,
            ended_ns=now,
            exit_code=code if code >= 0 else None,
            signal=-code if code < 0 else None,
            started_ns=self._started_ns[rank],
            error=self._error(folder, code) if code else None,
            stack=self._stack(folder, rank) if code else None,
            term_ns=self._term_ns,
            kill_ns=self._kill_ns,
            memory=self._memory(pid) if code == -signal.SIGKILL else None,
        )
        ending.known = self._known(ending, folder, pid)
        self._endings.append(ending)
        self._record.ended(ending, self._restart, dropped=_dropped(folder))
        self.on_ended(ending)
        if ending.failed and not ending.by_us:
            self.on_failure(collateral=ending.collateral)
        if not self.living and self._all_started():
            self.on_empty()

    def _error(self, folder: str, code: int) -> dict[str, Any] | None:
        """Return the record that a failed rank left, without its secrets."""
        error = read_error(folder)
        if error is None and code == -signal.SIGABRT:
            error = read_abort(folder)
        if error is None and code == 1 and self._cluster is not None:
            error = read_out_of_memory(folder)
        if error is None and code > 0 and self._read_command_error is not None:
            error = self._read_command_error(folder, code, self._spec)
        if error is not None:
            error = shared_run_named(error, self._spec, self._restart)
            for name in ("summary", "traceback"):
                error[name] = error[name] and self._redact(error[name])
        return error

    def _known(self, ending: RankEnding, folder: str, pid: int) -> dict[str, Any] | None:
        """Return the kind of a rank's failure, without secrets; None if it is not known. Looked for
        here, since the logs are on this node."""
        cause = Verdict([ending]).cause
        if cause is None:
            return None
        whole = ending.error is not None and ending.error["time_ns"] is not None
        known = self._kind_of_failure(
            cause["class"],
            cause["summary"],
            cause["traceback"],
            tuple if whole and cause["class"] == "exception" else lambda: _ends_of_logs(folder),
            lambda: gpu_error(kernel_records() or (), pid, ending.started_ns),
        )
        if not known:
            return None
        said = {name: text and self._redact(text) for name, text in known["explanation"].items()}
        return {**known, "explanation": said}

    def _memory(self, pid: int) -> dict[str, Any] | None:
        short = shortage(pid, self._oom_kills)
        return short.message(self._loop.peak) if short else None

    def _stack(self, folder: str, rank: int) -> dict[str, str] | None:
        text = read_stack(folder)
        if text is None:
            return None
        text = own_frames_left_out(text, self._spec)
        file = os.path.join(rank_folder("", rank, self._restart), "fault.log")
        return {"file": file, "text": self._redact(text)}

    def _all_started(self) -> bool:
        return len(self._endings) == len(self._ranks) or self._term_ns is not None


def _ends_of_logs(folder: str) -> list[str]:
    names = ("stderr.log", "stdout.log")
    return [end_of_log(folder, name).decode("utf-8", "replace") for name in names]


def _dropped(folder: str) -> int:
    """Return how many bytes of output a rank could not write because the disk was full."""
    total = 0
    for name in ("stdout.dropped", "stderr.dropped"):
        try:
            total += os.stat(os.path.join(folder, name)).st_size
        except OSError:
            continue
    return total


def _signal_group(pid: int, number: int) -> None:
    """Signal the group that a rank leads; it is not reaped yet, so the number is still its own.

    We may not signal a rank that is a setuid program: we wait for it.
    """
    try:
        os.killpg(pid, number)
    except PermissionError:
        return
    except ProcessLookupError:
        try:
            os.kill(pid, number)  # it has not reached setsid yet
        except ProcessLookupError:
            return
