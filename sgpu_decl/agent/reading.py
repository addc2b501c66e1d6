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
from contextlib import suppress

from sgpu_decl.agent import processes, records
from sgpu_decl.agent.cgroup import remove_cgroup
from sgpu_decl.agent.lean import signal
from sgpu_decl.agent.locks import held
from sgpu_decl.agent.report import lost_outcome

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pathlib import Path
    from typing import Any

__all__ = ["clear_remains", "read_attempt", "read_events", "request_cancel"]

_KEYS = ("state", "started_at", "ended_at", "exit_code", "class", "ranks", "first_cause", "restart")
_EMPTY: dict[str, Any] = {"started_at": None, "ended_at": None, "exit_code": None, "class": None,
                          "ranks": [], "first_cause": None, "restart": 0}  # fmt: skip
_RANK = ("rank", "node_rank", "state", "exit_code", "signal")


def read_attempt(folder: Path | str) -> dict[str, Any]:
    """Return `state, started_at, ended_at, exit_code, class, ranks, first_cause, restart`.

    `waiting_for` is there too while it is queued: `earlier attempts`, `max_parallel` or `gpus`.
    """
    path = os.fspath(folder)
    outcome = records.read_json(path, records.OUTCOME)
    if outcome is not None:
        return _shape(outcome)
    alive = held(os.path.join(path, records.SUPERVISOR_LOCK))
    if alive is None:
        return {"state": "staging", **_EMPTY}
    status = records.read_json(path, records.STATUS)
    identity = records.read_json(path, records.IDENTITY) or {}
    elsewhere = identity.get("machine") not in (None, processes.machine_id())
    if alive or elsewhere:  # locks of another machine say nothing here
        return _shape(status or {"state": "starting", **_EMPTY})
    if held(os.path.join(path, records.GUARDIAN_LOCK)):
        return {**_shape(status or _EMPTY), "state": "stopping"}
    outcome = records.read_json(path, records.OUTCOME)
    if outcome is not None:  # written between the two looks
        return _shape(outcome)
    if identity.get("boot") == processes.boot_id():
        failure, summary = "supervisor_lost", "the processes that supervised this attempt are gone"
    else:
        failure, summary = "node_lost", "the machine was restarted while this attempt was active"
    return _shape({**lost_outcome(status, failure, summary, "reader"), "ended_at": None})


def _shape(record: dict[str, Any]) -> dict[str, Any]:
    shaped = {key: record.get(key) for key in _KEYS}
    ranks = record.get("ranks") or ()
    shaped["ranks"] = [{key: rank.get(key) for key in _RANK} for rank in ranks]
    if record.get("waiting_for"):
        shaped["waiting_for"] = record["waiting_for"]
    return shaped


def read_events(folder: Path | str, offset: int = 0) -> tuple[list[dict[str, Any]], int]:
    """Return the events from a byte offset on, and the offset to go on from."""
    try:
        with open(os.path.join(folder, records.EVENTS), "rb") as file:
            file.seek(offset)
            events, taken = records.parse_events(file.read())
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
    if os.path.exists(os.path.join(path, records.OUTCOME)):
        return
    with suppress(FileExistsError):  # it was asked before
        os.link(os.path.join(path, records.SPEC), os.path.join(path, records.CANCEL))
    identity = records.read_json(path, records.IDENTITY)
    if identity and held(os.path.join(path, records.SUPERVISOR_LOCK)):
        processes.tell(identity["pid"], identity["start_time"], signal.SIGWINCH)


def clear_remains(folder: Path | str, *, grace: float = 5.0) -> int:
    """Stop what a crash of supervisor and guardian left running; return how many there were.

    Processes are known by the cookie in their environment and by their start time.
    """
    path = os.fspath(folder)
    identity = records.read_json(path, records.IDENTITY)
    alive = any(
        held(os.path.join(path, name)) for name in (records.SUPERVISOR_LOCK, records.GUARDIAN_LOCK)
    )
    if identity is None or alive or identity["boot"] != processes.boot_id():
        return 0
    found = processes.carriers(identity["token"])
    if identity.get("cgroup"):
        remove_cgroup(identity["cgroup"])
    if found:
        processes.stop_all(lambda: [p for p, _ in processes.carriers(identity["token"])], grace)
    return len(found)
