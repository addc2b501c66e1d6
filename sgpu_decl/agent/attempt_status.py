"""The truth about an attempt: a pure function of its folder, right after any crash or reboot.

1. `outcome.json` is there: that is the verdict.
2. the supervisor's lock is held: alive; `status.json` has the details.
3. only the guardian's lock is held: the supervisor died, its ranks are being stopped.
4. neither is held: `lost`, by a reboot if the boot id differs, else by a crash; but succeeded if
   every rank had ended with 0.
5. there never was a lock: not launched yet (`staging`).
"""

from __future__ import annotations

import os
import time
from contextlib import suppress

from sgpu_decl.agent import attempt_files, processes
from sgpu_decl.agent.attempt_record import lost_outcome
from sgpu_decl.agent.cgroup import remove_cgroup
from sgpu_decl.agent.fast_stdlib import signal
from sgpu_decl.agent.host_record import BEAT, read_record, take_abandoned
from sgpu_decl.agent.locks import held

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path
    from typing import Any

__all__ = [
    "abandoned_identity",
    "attempt_exists",
    "clear_remains",
    "read_attempt",
    "read_events",
    "remaining_processes",
    "request_cancel",
]

_KEYS = ("state", "started_at", "ended_at", "exit_code", "class", "ranks", "first_cause", "restart",
         "restarts")  # fmt: skip
_EMPTY: dict[str, Any] = {"started_at": None, "ended_at": None, "exit_code": None, "class": None,
                          "ranks": [], "first_cause": None, "restart": 0,
                          "restarts": []}  # fmt: skip
_DELETED: dict[str, Any] = {"rank": None, "class": None, "traceback": None, "simultaneous": [],
            "summary": "its folder was deleted, and its processes are being stopped"}  # fmt: skip
_LATE = 3 * BEAT  # a supervisor without a sign of life for so long is stopped, or hangs
_RARE = ("dropped_bytes",)  # of a rank, shown only if it is there
_RANK = ("rank", "node_rank", "state", "exit_code", "signal")


def read_attempt(folder: Path | str) -> dict[str, Any]:
    """Return `state, started_at, ended_at, exit_code, class, ranks, first_cause, restart,
    restarts`.

    `waiting_for` is there too while it waits: queued for `earlier attempts`, `max_parallel` or
    `gpus`; to start its ranks again for its `backoff`; starting for its tracker, which says in
    words what that waits for. `mlflow` is there once the tracker has made the run, or gave up, and
    `working_files` once it has ended, if ranks wrote into their working folder.
    """
    path = os.fspath(folder)
    outcome = attempt_files.read_json(path, attempt_files.OUTCOME)
    if outcome is not None:
        return _shape(outcome)
    alive = held(os.path.join(path, attempt_files.SUPERVISOR_LOCK))
    if alive is None:
        if read_record(path) is not None:
            return {**_EMPTY, "state": "stopping", "first_cause": _DELETED}
        return {"state": "staging", **_EMPTY}
    status = attempt_files.read_json(path, attempt_files.STATUS)
    identity = attempt_files.read_json(path, attempt_files.IDENTITY) or {}
    elsewhere = identity.get("machine") not in (None, processes.machine_id())
    if alive or elsewhere:  # locks of another machine say nothing here
        seen = _shape(status or {"state": "starting", **_EMPTY})
        since = None if elsewhere else _silent_since(path)
        return {**seen, "not_responding_since": since} if since else seen
    if held(os.path.join(path, attempt_files.GUARDIAN_LOCK)):
        return {**_shape(status or _EMPTY), "state": "stopping"}
    outcome = attempt_files.read_json(path, attempt_files.OUTCOME)
    if outcome is not None:  # written between the two looks
        return _shape(outcome)
    if identity.get("boot") == processes.boot_id():
        failure, summary = "supervisor_lost", "the processes that supervised this attempt are gone"
    else:
        failure, summary = "node_lost", "the machine was restarted while this attempt was active"
    return _shape({**lost_outcome(status, failure, summary, "reader"), "ended_at": None})


def _silent_since(path: str) -> str | None:
    """Return since when a living supervisor has given no sign of life; None if that is recent."""
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
    ranks = record.get("ranks") or ()
    shaped["ranks"] = [
        {key: rank.get(key) for key in (*_RANK, *(key for key in _RARE if key in rank))}
        for rank in ranks
    ]
    if record.get("waiting_for"):
        shaped["waiting_for"] = record["waiting_for"]
    for name in ("mlflow", "working_files"):
        if record.get(name):
            shaped[name] = record[name]
    return shaped


def read_events(folder: Path | str, offset: int = 0) -> tuple[list[dict[str, Any]], int]:
    """Return the events from a byte offset on, and the offset to go on from."""
    try:
        with open(os.path.join(folder, attempt_files.EVENTS), "rb") as file:
            file.seek(offset)
            events, taken = attempt_files.parse_events(file.read())
    except FileNotFoundError:
        return [], offset
    return events, offset + taken


def request_cancel(folder: Path | str) -> None:
    """Ask the attempt to stop; harmless when it has ended or was asked before.

    The request is a name in the folder; the signal only says to look, so one that is sent before
    the supervisor is up loses nothing. It is a second name of the spec: that takes no space, so a
    run can be stopped that has filled the disk.

    Raises:
        OSError: the folder is gone or cannot be written.
    """
    path = os.fspath(folder)
    if os.path.exists(os.path.join(path, attempt_files.OUTCOME)):
        return
    if not os.path.exists(os.path.join(path, attempt_files.SUPERVISOR_LOCK)):
        record = read_record(path)
        if record is not None:  # the folder is gone: there is nothing to put a name into
            processes.tell(record["pid"], record["start_time"], signal.SIGTERM)
            return
    with suppress(FileExistsError):  # it was asked before
        os.link(os.path.join(path, attempt_files.SPEC), os.path.join(path, attempt_files.CANCEL))
    identity = attempt_files.read_json(path, attempt_files.IDENTITY)
    if identity and held(os.path.join(path, attempt_files.SUPERVISOR_LOCK)):
        processes.tell(identity["pid"], identity["start_time"], signal.SIGWINCH)


def clear_remains(folder: Path | str, *, grace: float = 5.0) -> int:
    """Stop what a crash of supervisor and guardian left running; return how many there were.

    Processes are known by the cookie in their environment and by their start time.
    """
    abandoned = take_abandoned(os.fspath(folder))
    identity = abandoned_identity(folder) or abandoned
    if identity is None or identity["boot"] != processes.boot_id():
        return 0
    found = processes.carriers(identity["token"])
    if identity.get("cgroup"):
        remove_cgroup(identity["cgroup"])
    if found:
        processes.stop_all(lambda: [p for p, _ in processes.carriers(identity["token"])], grace)
    return len(found)


def remaining_processes(folders: Sequence[Path | str]) -> dict[str, list[int]]:
    """Return the processes that are left of attempts that nobody supervises, by attempt folder."""
    tokens = {
        identity["token"]: os.fspath(folder)
        for folder in folders
        if (identity := abandoned_identity(folder)) is not None
    }
    found = processes.carriers_by_cookie(frozenset(tokens)) if tokens else {}
    return {tokens[token]: sorted(pids) for token, pids in found.items()}


def abandoned_identity(folder: Path | str) -> dict[str, Any] | None:
    """Return who supervised an attempt that nobody supervises any more; None if somebody does, or
    if no process of it can be left, as after a reboot."""
    path = os.fspath(folder)
    identity = attempt_files.read_json(path, attempt_files.IDENTITY)
    alive = any(
        held(os.path.join(path, name))
        for name in (attempt_files.SUPERVISOR_LOCK, attempt_files.GUARDIAN_LOCK)
    )
    if identity is None or alive or identity["boot"] != processes.boot_id():
        return None
    return identity
