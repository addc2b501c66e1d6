"""The forced stop of an attempt whose supervisor does not answer.

The process that asked the attempt to stop does this. The ranks get TERM and their grace, as from a
supervisor. Then it kills the supervisor, and the guardian sweeps and writes the outcome. If the
guardian does not answer either, this module sweeps by cookie and cgroup, and writes the outcome.
The outcome is `cancelled`, never `lost`: the next apply would launch a lost run again.
"""

from __future__ import annotations

import os
import time

from sgpu_decl.agent.attempt import attempt_files
from sgpu_decl.agent.attempt.attempt_record import cancelled_outcome
from sgpu_decl.agent.attempt.attempt_status import clear_remains
from sgpu_decl.agent.attempt.host_record import read_record
from sgpu_decl.agent.system import processes
from sgpu_decl.agent.system.fast_stdlib import signal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pathlib import Path
    from typing import Any

_DEATH = 1.0  # seconds that a killed process may take to be gone
_SWEEP = 10.0  # seconds that a guardian may need beyond the grace of ranks


class LocalForcedStop:
    """Stops one attempt that was just asked to. `patience` is how many seconds its supervisor may
    be silent."""

    def __init__(self, folder: Path | str, patience: float) -> None:
        self._folder = os.fspath(folder)
        self._patience = patience
        self._request = time.monotonic()
        self._steps = [self._signal_ranks, self._kill_supervisor, self._kill_guardian]
        self._due = 0.0

    def look(self) -> str | None:
        """Take the next step if it is due, without waiting; return in words what was done."""
        if not self._steps:
            return None
        identity = self._identity()
        if identity is None:
            return None
        if len(self._steps) == 3:
            beat = (read_record(self._folder) or {}).get("beat_ns") or 0
            self._due = max(self._request, beat / 1e9) + self._patience
        if time.monotonic() < self._due:
            return None
        return self._steps.pop(0)(identity)

    def _identity(self) -> dict[str, Any] | None:
        """Return who supervises the attempt, with its grace; None once it has ended."""
        if os.path.exists(os.path.join(self._folder, attempt_files.OUTCOME)):
            return None
        identity = attempt_files.read_json(self._folder, attempt_files.IDENTITY) or read_record(
            self._folder
        )
        if identity is None or identity["boot"] != processes.boot_id():
            return None
        spec = attempt_files.read_json(self._folder, attempt_files.SPEC) or identity
        return {**identity, "grace": float(spec["grace"])}

    def _signal_ranks(self, identity: dict[str, Any]) -> str:
        for pid, started in processes.carriers(identity["token"]):
            processes.send_signal(pid, started, signal.SIGTERM)
        self._due = time.monotonic() + identity["grace"]
        return f"its supervisor (pid {identity['pid']}) does not answer: its ranks got SIGTERM"

    def _kill_supervisor(self, identity: dict[str, Any]) -> str:
        processes.send_signal(identity["pid"], identity["start_time"], signal.SIGKILL)
        self._due = time.monotonic() + identity["grace"] + _SWEEP
        return "its supervisor was killed; its guardian stops the processes that are left"

    def _kill_guardian(self, identity: dict[str, Any]) -> str:
        processes.send_signal(identity["guardian"], identity["guardian_start"], signal.SIGKILL)
        deadline = time.monotonic() + _DEATH
        while processes.alive(identity["guardian"], identity["guardian_start"]):
            if time.monotonic() > deadline:
                break  # it waits for a disk, and ends after that
            time.sleep(0.01)
        count = clear_remains(self._folder, grace=0.0)
        status = attempt_files.read_json(self._folder, attempt_files.STATUS)
        if os.path.isdir(self._folder):
            outcome = cancelled_outcome(status, "its supervisor did not answer", "cancel")
            attempt_files.write_once(
                self._folder, attempt_files.OUTCOME, attempt_files.encode(outcome)
            )
        return f"its guardian was killed too, and {count} processes that were left were stopped"
