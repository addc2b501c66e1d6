"""The ranks of one restart: started together, told together, and how each of them ended."""

from __future__ import annotations

import os
import signal
import time

from sgpu_decl.agent.errorfile import read_error
from sgpu_decl.agent.oom import killed_for_memory, oom_kills
from sgpu_decl.agent.redacting import Redactor
from sgpu_decl.agent.spawning import (
    LaunchError,
    argv_of,
    exec_error,
    rank_environment,
    rank_folder,
    spawn,
)
from sgpu_decl.agent.verdict import Ending, signal_name

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from sgpu_decl.agent.loop import Loop
    from sgpu_decl.agent.report import Report

__all__ = ["RankGroup"]


class RankGroup:
    """Starts ranks and tells `on_ready`, `on_failure(collateral=)` and `on_empty`."""

    on_ready: Callable[[], None]
    on_failure: Callable[..., None]
    on_empty: Callable[[], None]

    def __init__(
        self, spec: dict[str, Any], secrets: dict[str, str], loop: Loop, report: Report
    ) -> None:
        self._spec = spec
        self._secrets = secrets
        self._redact = Redactor(secrets.values())
        self._loop = loop
        self._report = report
        self._ready_pipe = -1
        self.python = spec["entry"]["kind"] not in ("command", "shell")
        self.reset()

    def reset(self) -> None:
        """Forget the ranks of the last restart, and what they may still have told."""
        self._loop.forget(self._ready_pipe)
        self.living: dict[int, int] = {}
        self._started_ns: dict[int, int] = {}
        self.started = False
        self.failed_to_start: int | None = None
        self._endings: list[Ending] = []
        self._told_ns: int | None = None
        self._killed_ns: int | None = None
        self._ready: set[int] = set()

    def start(
        self, restart: int, port: int, devices: tuple[str, ...], extra: Mapping[str, str]
    ) -> LaunchError | None:
        """Start all ranks; return why one could not be started (the others then still live)."""
        self.started = True
        self._restart = restart
        self._oom_kills = oom_kills()
        try:
            ready, readied = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        except OSError as error:
            return LaunchError("launch_failed", f"cannot make a pipe: {error.strerror}")
        self._ready_pipe = ready
        self._loop.read(ready, lambda: self._read_ready(ready))
        pipes: list[tuple[int, int]] = []
        failure: LaunchError | None = None
        try:
            argv = argv_of(self._spec)
            for rank in range(len(self._report.ranks)):
                self.failed_to_start = rank
                pipes.append(
                    (rank, self._start_one(argv, rank, port, devices, dict(extra), readied))
                )
        except LaunchError as error:
            failure = error
        except OSError as error:
            failure = LaunchError("launch_failed", f"cannot make the rank's folder: {error}")
        os.close(readied)
        for rank, told in pipes:
            refused = exec_error(told, argv[0])
            if refused is not None and failure is None:
                self.failed_to_start, failure = rank, refused
        if failure is None:
            self.failed_to_start = None
            if not self.python:
                self.on_ready()
        return failure

    def _start_one(
        self,
        argv: list[str],
        rank: int,
        port: int,
        devices: tuple[str, ...],
        extra: dict[str, str],
        readied: int,
    ) -> int:
        folder = rank_folder(self._spec["run_dir"], rank, self._restart)
        os.makedirs(folder, mode=0o700, exist_ok=True)
        environment = rank_environment(
            self._spec,
            inherited={**os.environ, **extra},
            secrets=self._secrets,
            rank=rank,
            restart=self._restart,
            port=port,
            devices=devices,
        )
        if self.python:
            environment["SGPU_READY_FD"] = str(readied)
        self._started_ns[rank] = time.monotonic_ns()
        pid, told = spawn(
            argv,
            environment,
            cwd=self._spec["code_dir"],
            logs=(os.path.join(folder, "stdout.log"), os.path.join(folder, "stderr.log")),
            settle=self._loop.close,
            keep=readied if self.python else None,
        )
        self.living[rank] = pid
        self._report.rank(rank, state="running", exit_code=None, signal=None, pid=pid)
        self._report.event("rank_started", rank=rank, pid=pid, restart=self._restart)
        self._loop.watch(pid, lambda status, now: self._ended(rank, status, now))
        return told

    def _read_ready(self, pipe: int) -> None:
        """Python ranks write their number just before the user's code is loaded."""
        data = os.read(pipe, 65_536)
        if not data:
            self._loop.forget(pipe)
            return
        self._ready.update(int(word) for word in data.split() if word.isdigit())
        if len(self._ready) >= len(self._report.ranks):
            self.on_ready()

    def signal_all(self, number: int) -> None:
        """Send a signal to every living rank's process group."""
        if number == signal.SIGTERM and self._told_ns is None:
            self._told_ns = time.monotonic_ns()
        for pid in self.living.values():
            _signal_group(pid, number)

    def kill_all(self) -> None:
        """End every living rank's process group at once."""
        if self.living and self._killed_ns is None:
            self._killed_ns = time.monotonic_ns()
            self._told_ns = self._told_ns or self._killed_ns
        for pid in self.living.values():
            _signal_group(pid, signal.SIGKILL)

    def endings(self) -> list[Ending]:
        return list(self._endings)

    def mark_ended(self, failed: frozenset[int]) -> None:
        """Give each rank its last state: those in `failed` failed by themselves."""
        for ending in self._endings:
            ended = "stopped" if ending.failed else "succeeded"
            self._report.rank(ending.rank, state="failed" if ending.rank in failed else ended)
            self._report.ranks[ending.rank].pop("pid", None)

    def _ended(self, rank: int, status: int, now: int) -> None:
        pid = self.living.pop(rank)
        code = os.waitstatus_to_exitcode(status)
        folder = rank_folder(self._spec["run_dir"], rank, self._restart)
        ending = Ending(
            rank=rank,
            ended_ns=now,
            exit_code=code if code >= 0 else None,
            signal=-code if code < 0 else None,
            started_ns=self._started_ns[rank],
            error=self._error(folder) if code else None,
            told_ns=self._told_ns,
            killed_ns=self._killed_ns,
            oom=code == -signal.SIGKILL and killed_for_memory(pid, self._oom_kills),
        )
        self._endings.append(ending)
        name = signal_name(-code) if code < 0 else None
        self._report.rank(
            rank, state="failed" if code else "succeeded", exit_code=ending.exit_code, signal=name
        )
        self._report.event(
            "rank_ended", rank=rank, exit_code=ending.exit_code, signal=name, restart=self._restart
        )
        if not self.living and self._all_started():
            self.on_empty()
        elif ending.failed and not ending.by_us:
            self.on_failure(collateral=ending.collateral)

    def _error(self, folder: str) -> dict[str, Any] | None:
        """Return what the rank left about its failure, without the secrets that it was given."""
        error = read_error(folder)
        if error is not None:
            for name in ("summary", "traceback"):
                error[name] = error[name] and self._redact(error[name])
        return error

    def _all_started(self) -> bool:
        return len(self._endings) == len(self._report.ranks) or self._told_ns is not None


def _signal_group(pid: int, number: int) -> None:
    """Signal the group that a rank leads; it is not reaped yet, so the number is still its own."""
    try:
        os.killpg(pid, number)
    except ProcessLookupError:
        try:
            os.kill(pid, number)  # it has not reached setsid yet
        except ProcessLookupError:
            return
