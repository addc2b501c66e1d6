"""What the monitor does in its process: measure once a second, and follow the progress of ranks.

It leaves `series.db` (see `series_file`), and `monitor.json` (see `monitor_files`), which is
replaced each second. What the monitor cannot do, the run does without it.
"""

from __future__ import annotations

import errno
import os
import select
import socket
import sqlite3
import time
from contextlib import suppress

from sgpu_decl.agent.attempt.attempt_files import (
    encode,
    parse_object,
    read_json,
    say,
    stamp,
    write_atomic,
)
from sgpu_decl.agent.attempt.monitor_files import (
    LONGEST,
    MONITOR,
    REPORTED,
    monitored,
)
from sgpu_decl.agent.monitor.device_usage import DeviceUsage
from sgpu_decl.agent.monitor.hang_watch import HangWatch
from sgpu_decl.agent.monitor.idle_window import IdleWindow
from sgpu_decl.agent.monitor.progress_estimate import RANKING, ProgressEstimate, Report, checked
from sgpu_decl.agent.monitor.progress_lines import LineProgress, declared_total
from sgpu_decl.agent.monitor.progress_server import serve
from sgpu_decl.agent.monitor.rank_usage import RankUsage
from sgpu_decl.agent.monitor.series_file import SeriesFile
from sgpu_decl.agent.monitor.usage_sums import UsageSums
from sgpu_decl.agent.ranks.rank_start import rank_folder
from sgpu_decl.agent.system.cgroup import usable_processors
from sgpu_decl.agent.system.oom import usable_memory
from sgpu_decl.agent.system.safe_files import regular_opener

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

_EACH = 1.0  # seconds
_SENT = 5.0  # seconds between two messages to the monitor of node 0
_SILENT = 30.0  # seconds after which a monitor elsewhere has seen nothing new
_TAIL = 1 << 16  # bytes of a log that are looked at each time
_STREAMS = ("stderr.log", "stdout.log")


class Monitor:
    """For the ranks of one node in `folder`, started for the `restart`-th time.

    `living` are their processes by their numbers. Programs report progress at the socket
    `listening`, with the `token`. The `supervisor` hears at a socket what it has to know.
    """

    def __init__(
        self,
        spec: Mapping[str, Any],
        folder: str,
        *,
        node: int,
        restart: int,
        living: Mapping[int, int],
        devices: Sequence[str],
        listening: int,
        token: str,
        supervisor: socket.socket,
    ) -> None:
        self._folder = folder
        self._sends = node > 0  # what it sees, to the monitor of node 0
        self._send_due = 0.0
        self._elsewhere: dict[str, tuple[float, Any]] = {}
        self._listening = socket.socket(fileno=listening) if listening >= 0 else None
        self._token = token
        self._usage = {rank: RankUsage(pid) for rank, pid in living.items()}
        self._devices = DeviceUsage(devices)
        self._sums = UsageSums(
            processors=usable_processors(), memory=usable_memory()[0],
            gpu_name=self._devices.name, before=monitored(folder).get("usage"),
        )  # fmt: skip
        limit = spec["idle"]
        self._idle = limit and IdleWindow(limit["below"], limit["seconds"])
        self._supervisor = supervisor
        self._hangs = HangWatch(spec, node=node, restart=restart, living=living, send=self._send)
        self._series: SeriesFile | None = None
        try:
            self._series = SeriesFile(folder, node=node, clock=_clock())
        except (OSError, sqlite3.Error) as error:
            say(f"what the ranks use is not recorded: {error}")
        self._heard: dict[str, Report] = {}
        self._progress: dict[str, ProgressEstimate] = {}
        self._logs = [
            _Tail(os.path.join(rank_folder(spec["run_dir"], rank, restart), name))
            for rank in sorted(living)[:1]
            if rank == 0
            for name in _STREAMS
        ]
        self._reports = [
            os.path.join(rank_folder(spec["run_dir"], rank, restart), REPORTED)
            for rank in sorted(living)
        ]
        entry = spec["entry"]
        words = [*map(str, entry.get("command") or ()), str(entry.get("shell") or "")]
        total = declared_total(entry.get("args"), " ".join(words))
        self._lines = {log: LineProgress(total) for log in self._logs}

    def run(self) -> None:
        """Measure until the supervisor closes its socket, and once more then."""
        due = time.monotonic()
        waiting: list[Any] = [self._supervisor]
        self._hangs.begin()
        if self._listening is not None:
            waiting.append(self._listening)
        while True:
            ready, _, _ = select.select(waiting, [], [], max(0.0, due - time.monotonic()))
            if self._listening is not None and self._listening in ready:
                waiting.remove(self._listening)
                serve(self._listening, self._token, self._take)
                continue
            if self._supervisor in ready:
                message = self._receive()
                if message is None:
                    break
                node = message["node"]
                if "looks" in message:
                    self._hangs.take(node, message["looks"])
                else:
                    self._elsewhere[str(node)] = (time.monotonic(), message["seen"])
                continue
            self.look()
            due = max(due + _EACH, time.monotonic())
        self.look()
        if self._series is not None:
            self._series.close()

    def _send(self, message: dict[str, Any]) -> None:
        with suppress(OSError):  # it is busy or ends: the next message comes soon
            self._supervisor.send(encode(message), socket.MSG_DONTWAIT)

    def _receive(self) -> dict[str, Any] | None:
        try:
            return parse_object(self._supervisor.recv(LONGEST))
        except OSError:
            return None

    def look(self) -> None:
        """Measure once."""
        clock = _clock()
        used = {rank: usage.look(clock) for rank, usage in self._usage.items()}
        self._hangs.note(used)
        ranks = {rank: values for rank, values in used.items() if values is not None}
        devices = self._devices.look()
        self._sums.add(clock, ranks, devices)
        if self._idle:
            self._idle.add(clock, ranks, devices)
        self._listen()
        progress = self._said(clock)
        if self._series is not None:
            try:
                self._series.add(clock, ranks, devices, progress)
            except sqlite3.Error as error:
                say(f"what the ranks use is recorded no more: {error}")
                self._series = None
        now = {
            "at": stamp(),
            "ranks": {str(rank): values for rank, values in ranks.items()},
            "devices": devices,
            "progress": progress,
            "usage": self._sums.to_json(),
            "others": {
                node: seen
                for node, (came, seen) in self._elsewhere.items()
                if time.monotonic() - came < _SILENT
            },
            "idle": self._idle and self._idle.to_json(),
            "rank_wait": self._hangs.wait.to_json() if self._hangs.wait is not None else None,
        }
        if self._sends and clock >= self._send_due:
            self._send_due = clock + _SENT
            self._send({"seen": now})
        try:
            write_atomic(self._folder, MONITOR, encode(now))
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise  # the folder is gone: nobody looks any more

    def _take(self, report: Report) -> None:
        """Note a report; called in the thread of the server, too."""
        self._heard[report.source] = report

    def _listen(self) -> None:
        """Look at what ranks reported and printed since."""
        for path in self._reports:
            folder, name = os.path.split(path)
            found = read_json(folder, name, limit=_TAIL)
            if found is None:
                continue
            source = str(found.get("source", "reported"))
            report = checked(
                found.get("step"), found.get("total"), found.get("metrics"),
                source=source if source in RANKING else "reported",
            )  # fmt: skip
            if report is not None:
                self._take(report)
                break
        for log, lines in self._lines.items():
            text = log.read()
            if text:
                lines.read(text)
                report = lines.report()
                if report is not None:
                    self._take(report)

    def _said(self, clock: float) -> dict[str, Any] | None:
        heard, self._heard = self._heard, {}
        for source, report in list(heard.items()):  # the thread of the server may add one
            self._progress.setdefault(source, ProgressEstimate()).add(report, clock)
        speaking = [source for source in RANKING if source in self._progress]
        # Whoever knows the total counts more than who does not.
        speaking.sort(key=lambda source: self._progress[source].total is None)
        if not speaking:
            return None
        said = self._progress[speaking[0]].to_json(clock)
        for source in speaking[1:]:
            other = self._progress[source].to_json(clock)
            if said is not None and other is not None:
                said["metrics"] = {**other["metrics"], **said["metrics"]}
        return said


class _Tail:
    """The newest part of a log, from one look to the next."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._offset = 0

    def read(self) -> str:
        try:
            with open(self._path, "rb", buffering=0, opener=regular_opener) as file:
                size = os.fstat(file.fileno()).st_size
                if size == self._offset:
                    return ""
                file.seek(max(self._offset, size - _TAIL) if size > self._offset else 0)
                data = file.read(_TAIL)
        except OSError:
            return ""
        self._offset = size
        return data.decode("utf-8", "replace")


def _clock() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)
