"""The truth about an attempt: a pure function of its folder, right after any crash or reboot.

1. `outcome.json` is there: it has the verdict.
2. The supervisor's lock is held: the attempt is alive, and `status.json` has the details.
3. Only the guardian's lock is held: the supervisor died, and its ranks are being stopped.
4. No lock is held: the attempt succeeded if every rank had ended with 0. Otherwise it is `lost`: by
   a reboot if the boot id differs, else by a crash.
5. There never was a lock: the attempt is not launched yet (`staging`).
"""

from __future__ import annotations

import os
import time
from contextlib import suppress

from sgpu_decl.agent.attempt import attempt_files
from sgpu_decl.agent.attempt.attempt_record import lost_outcome
from sgpu_decl.agent.attempt.host_record import BEAT, read_record, take_abandoned
from sgpu_decl.agent.attempt.monitor_files import monitored
from sgpu_decl.agent.attempt.report_check import is_report
from sgpu_decl.agent.system import processes
from sgpu_decl.agent.system.cgroup import remove_cgroup
from sgpu_decl.agent.system.fast_stdlib import signal
from sgpu_decl.agent.system.locks import held

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path
    from typing import Any

_KEYS = ("state", "started_at", "ended_at", "exit_code", "class", "ranks", "first_cause", "restart",
         "restarts")  # fmt: skip
_OPTIONAL = ("waiting_for", "mlflow", "ray", "working_files", "metrics", "metrics_problem",
             "progress", "usage", "idle", "rank_wait")  # fmt: skip
_EMPTY: dict[str, Any] = {"started_at": None, "ended_at": None, "exit_code": None, "class": None,
                          "ranks": [], "first_cause": None, "restart": 0,
                          "restarts": []}  # fmt: skip
_DELETED: dict[str, Any] = {"rank": None, "class": None, "traceback": None, "simultaneous": [],
            "summary": "its folder was deleted, and its processes are being stopped"}  # fmt: skip
_LATE = 3 * BEAT  # a supervisor that is silent for so long is stopped, or hangs
_RANK = ("rank", "node_rank", "state", "exit_code", "signal", "dropped_bytes")


def monotonic_epoch_ns(folder: Path | str) -> int | None:
    """When the monotonic clock of an attempt was 0, in ns since the epoch; None if the attempt ran
    on another machine, or before a reboot."""
    identity = attempt_files.read_json(os.fspath(folder), attempt_files.IDENTITY) or {}
    if identity.get("boot") != processes.boot_id():
        return None
    return time.time_ns() - time.monotonic_ns()


def read_attempt(folder: Path | str) -> dict[str, Any]:
    """Return `state, started_at, ended_at, exit_code, class, ranks, first_cause, restart,
    restarts`.

    An attempt that waits has `waiting_for` too. A queued one waits for `earlier attempts`, for
    attempts of other runs, which are named, for `max_parallel` or for `gpus`; one whose ranks start
    again, for its `backoff`; a starting one, for what its tracker names, for what its ranks import
    ahead, or for a part of its Ray cluster. `mlflow` is there once the tracker has made the run or
    has given up, `ray` once the run's Ray cluster is complete. After the end, `working_files` is
    there if ranks wrote into their working folder, and `metrics` and `metrics_problem` are what
    their `metrics.json` says. `progress` is there once the ranks have told theirs, and `usage` once
    it was measured; `idle` while they use less than the run allows, `rank_wait` while they wait.
    """
    path = os.fspath(folder)
    outcome = _report(path, attempt_files.OUTCOME)
    if outcome is not None:
        return _shape(outcome)
    alive = held(os.path.join(path, attempt_files.SUPERVISOR_LOCK))
    if alive is None:
        if read_record(path) is not None:
            return {**_EMPTY, "state": "stopping", "first_cause": _DELETED}
        return {"state": "staging", **_EMPTY}
    status = _report(path, attempt_files.STATUS)
    identity = attempt_files.read_json(path, attempt_files.IDENTITY) or {}
    elsewhere = identity.get("machine") not in (None, processes.machine_id())
    if alive or elsewhere:  # locks of another machine say nothing here
        shape = _shape({**(status or {"state": "starting", **_EMPTY}), **monitored(path)})
        since = None if elsewhere else _silent_since(path)
        return {**shape, "not_responding_since": since} if since else shape
    if held(os.path.join(path, attempt_files.GUARDIAN_LOCK)):
        return {**_shape(status or _EMPTY), "state": "stopping"}
    outcome = _report(path, attempt_files.OUTCOME)
    if outcome is not None:  # written between the two looks
        return _shape(outcome)
    if identity.get("boot") == processes.boot_id():
        failure, summary = "supervisor_lost", "the processes that supervised this attempt are gone"
    else:
        failure, summary = "node_lost", "the machine was restarted while this attempt was active"
    outcome = lost_outcome(status, failure, summary, "reader")
    return _shape({**outcome, "ended_at": _last_sign(path)})


def _report(path: str, name: str) -> dict[str, Any] | None:
    """A report of an agent; None where there is none, or something else has written the file."""
    report = attempt_files.read_json(path, name)
    return report if report is not None and is_report(report) else None


def _last_sign(path: str) -> str | None:
    """When something of an attempt that is lost was last seen to live: that is its end, as far as
    anybody knows."""
    files = [os.path.join(path, name) for name in (attempt_files.EVENTS, attempt_files.STATUS)]
    for folder, _, names in os.walk(os.path.join(path, "ranks")):
        files += [os.path.join(folder, name) for name in names]
    moments = []
    for file in files:
        with suppress(OSError):
            moments.append(os.stat(file).st_mtime)
    return attempt_files.stamp(max(moments)) if moments else None


def _silent_since(path: str) -> str | None:
    """Return when a supervisor gave its last sign of life; None if that is recent."""
    beat = (read_record(path) or {}).get("beat_ns")
    silent = 0.0 if beat is None else (time.monotonic_ns() - beat) / 1e9
    return attempt_files.stamp(time.time() - silent) if silent > _LATE else None


def attempt_exists(folder: Path | str) -> bool:
    """Whether an attempt has a folder, or still runs without one."""
    path = os.fspath(folder)
    return os.path.isdir(path) or read_record(path) is not None


def _shape(record: dict[str, Any]) -> dict[str, Any]:
    shaped = {key: record.get(key) for key in _KEYS}
    shaped["restart"], shaped["restarts"] = shaped["restart"] or 0, shaped["restarts"] or []
    shaped["ranks"] = [
        {key: rank.get(key) for key in _RANK if key in rank or key != "dropped_bytes"}
        for rank in record.get("ranks") or ()
    ]
    for name in _OPTIONAL:
        if record.get(name):
            shaped[name] = record[name]
    return shaped


def request_cancel(folder: Path | str) -> None:
    """Ask the attempt to stop. Does nothing if it has ended, or was asked before.

    The request is a file in the folder; the signal only makes the supervisor look, so nothing is
    lost if the supervisor is not up yet. The file is a hard link to the spec: it takes no space, so
    a run that has filled the disk can be stopped.

    Raises:
        OSError: the folder is gone or cannot be written.
    """
    path = os.fspath(folder)
    if os.path.exists(os.path.join(path, attempt_files.OUTCOME)):
        return
    if not os.path.exists(os.path.join(path, attempt_files.SUPERVISOR_LOCK)):
        record = read_record(path)
        if record is not None:  # the folder is gone, so it takes no file
            processes.send_signal(record["pid"], record["start_time"], signal.SIGTERM)
            return
    with suppress(FileExistsError):  # there was a request before
        os.link(os.path.join(path, attempt_files.SPEC), os.path.join(path, attempt_files.CANCEL))
    identity = attempt_files.read_json(path, attempt_files.IDENTITY)
    if identity and held(os.path.join(path, attempt_files.SUPERVISOR_LOCK)):
        processes.send_signal(identity["pid"], identity["start_time"], signal.SIGWINCH)


def clear_remains(folder: Path | str, *, grace: float = 5.0) -> int:
    """Stop the processes that a crash of supervisor and guardian left; return their number.

    The cookie in the environment and the start time identify a process.
    """
    abandoned = take_abandoned(os.fspath(folder))
    identity = abandoned_identity(folder) or abandoned
    if identity is None or identity["boot"] != processes.boot_id():
        return 0
    carriers = processes.carriers(identity["token"])
    if identity.get("cgroup"):
        remove_cgroup(identity["cgroup"])
    if carriers:
        processes.stop_all(lambda: [p for p, _ in processes.carriers(identity["token"])], grace)
    return len(carriers)


def remaining_processes(folders: Sequence[Path | str]) -> dict[str, list[int]]:
    """Return the remaining processes of attempts that nobody supervises, by attempt folder."""
    tokens = {
        identity["token"]: os.fspath(folder)
        for folder in folders
        if (identity := abandoned_identity(folder)) is not None
    }
    carriers = processes.carriers_by_cookie(frozenset(tokens)) if tokens else {}
    return {tokens[token]: sorted(pid for pid, _ in pids) for token, pids in carriers.items()}


def abandoned_identity(folder: Path | str) -> dict[str, Any] | None:
    """Return who supervised an attempt that nobody supervises any more.

    None if somebody does, or if none of its processes can be left, as after a reboot.
    """
    path = os.fspath(folder)
    identity = attempt_files.read_json(path, attempt_files.IDENTITY)
    alive = any(
        held(os.path.join(path, name))
        for name in (attempt_files.SUPERVISOR_LOCK, attempt_files.GUARDIAN_LOCK)
    )
    if identity is None or alive or identity["boot"] != processes.boot_id():
        return None
    return identity
