"""What an attempt records about itself: status, events and the one outcome."""

from __future__ import annotations

import os
import time

from sgpu_decl.agent.attempt import attempt_files
from sgpu_decl.agent.system.fast_stdlib import signal_name
from sgpu_decl.agent.system.safe_files import FolderHandle

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from sgpu_decl.agent.attempt.verdict import RankEnding

_MOST_RESTARTS = 20
_LONGEST_SUMMARY = 500  # characters


class AttemptRecord:
    """Keeps and writes the snapshot: `events.log`, then `status.json`, at last the outcome.

    A snapshot that cannot be written (a full disk, a folder that was deleted) never stops a run.
    """

    def __init__(self, folder: str, ranks: int, state: str, nodes: int = 1) -> None:
        self._folder = folder
        self._handle = FolderHandle(folder)
        self._log = attempt_files.EventLog(folder)
        self._spare = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        self._wall = time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)
        self._dirty = True
        self._unwritten = False
        each = max(1, ranks // nodes)  # beside a Ray cluster, there is one for all nodes
        self.ranks: list[dict[str, Any]] = [
            {"rank": rank, "node_rank": rank // each, "state": "queued", "exit_code": None,
             "signal": None}
            for rank in range(ranks)
        ]  # fmt: skip
        self.snapshot: dict[str, Any] = {
            "state": state,
            "waiting_for": None,
            "queued_at": self._now(),
            "started_at": self._now() if state == "starting" else None,
            "ended_at": None,
            "exit_code": None,
            "class": None,
            "ranks": self.ranks,
            "first_cause": None,
            "restart": 0,
            "restarts": [],
        }
        self.event("state", state=state)
        self.flush()

    def _now(self, ahead: float = 0.0) -> str:
        """Return the time by the wall clock of the start: a clock that is set later does not count,
        so no attempt ends before it started."""
        return attempt_files.stamp(self._wall + time.clock_gettime(time.CLOCK_BOOTTIME) + ahead)

    def check_folder(self) -> None:
        """Return if the folder is still there.

        Raises:
            OSError: it was deleted; another may lie in its place.
        """
        self._handle.check()

    def watch_folder(self, mark: str) -> None:
        """See `FolderHandle.watch`. Raises OSError."""
        self._handle.watch(mark)

    @property
    def folder_deleted(self) -> bool:
        return self._handle.deleted

    def event(self, name: str, /, *, durable: bool = False, **data: object) -> None:
        self._log.append(name, durable=durable, **data)

    def update(self, **fields: object) -> None:
        self.snapshot.update(fields)
        self._dirty = True

    def state(self, state: str, **data: object) -> None:
        """Enter a state, if it is another one."""
        if self.snapshot["state"] == state:
            return
        if state == "starting" and self.snapshot["started_at"] is None:
            self.snapshot["started_at"] = self._now()
        self.update(state=state)
        self.event("state", durable=True, state=state, **data)

    def restart(self, number: int, cause: dict[str, Any], backoff: float) -> None:
        """Note why the ranks start again, after `backoff` seconds.

        Only the newest restarts are kept, since the outcome must fit into its reserved space.
        """
        self.snapshot["restarts"] = [
            *self.snapshot["restarts"][1 - _MOST_RESTARTS :],
            {
                "restart": number,
                "at": self._now(),
                "starts_at": self._now(backoff),
                "rank": cause["rank"],
                "class": cause["class"],
                "kind": cause["kind"],
                "summary": cause["summary"][:_LONGEST_SUMMARY],
            },
        ]
        self.event("restart", restart=number, after=cause["class"], backoff=backoff)
        self.update(waiting_for="backoff")

    def rank(self, rank: int, **fields: object) -> None:
        self.ranks[rank].update(fields)
        self._dirty = True

    def ended(self, ending: RankEnding, restart: int, dropped: int = 0) -> None:
        """Note how a rank ended; `note_failed` says later which ranks failed by themselves.
        `dropped` bytes of its output are in no log."""
        if dropped:
            self.rank(ending.rank, dropped_bytes=dropped)
            self.event("output_dropped", rank=ending.rank, bytes=dropped)
        name = None if ending.signal is None else signal_name(ending.signal)
        state = "failed" if ending.failed else "succeeded"
        self.rank(ending.rank, state=state, exit_code=ending.exit_code, signal=name)
        self.event(
            "rank_ended", rank=ending.rank, exit_code=ending.exit_code, signal=name, restart=restart
        )

    def note_failed(self, endings: Sequence[RankEnding], failed: frozenset[int]) -> None:
        """Set the last state of each rank: those in `failed` failed by themselves. One that had
        raised an exception, and was stopped while it exited, shows the exception's exit code."""
        for ending in endings:
            ended = "stopped" if ending.failed else "succeeded"
            self.rank(ending.rank, state="failed" if ending.rank in failed else ended)
            if ending.rank in failed and ending.recorded_ns is not None and ending.signal:
                self.rank(ending.rank, exit_code=ending.code, signal=None)
            self.ranks[ending.rank].pop("pid", None)

    def flush(self) -> None:
        """Sync the events, and write the snapshot if it has changed.

        Called at the end of each turn of the loop, so that nothing in it waits for the disk.
        """
        self._log.sync()
        if not self._dirty:
            return
        self._dirty = False
        try:
            self._handle.check()
            attempt_files.write_atomic(
                self._folder, attempt_files.STATUS, attempt_files.encode(self.snapshot)
            )
            self._unwritten = False
        except OSError as error:
            if not self._unwritten:
                self.event("status_not_written", reason=str(error))
            self._unwritten = True

    def conclude(self, **fields: object) -> None:
        """Write the outcome, unless there is one already.

        Raises:
            OSError: it cannot be written; the guardian then writes one.
        """
        os.close(self._spare)  # the outcome needs one descriptor, and now there is one
        self.update(ended_at=self._now(), waiting_for=None, **fields)
        outcome = {
            "v": 1,
            **self.snapshot,
            "by": "supervisor",
            "ended_mono_ns": time.monotonic_ns(),
            "events_dropped": self._log.dropped,
        }
        if self._handle.deleted:
            return  # nobody could find it
        self._handle.check()
        attempt_files.write_once(self._folder, attempt_files.OUTCOME, attempt_files.encode(outcome))
        self.event("state", state=self.snapshot["state"])
        self.flush()


def lost_outcome(
    status: dict[str, Any] | None, failure: str, summary: str, by: str
) -> dict[str, Any]:
    """Return the outcome of an attempt whose supervisor wrote none.

    If every rank had ended with 0, the attempt succeeded all the same.
    """
    return _ended_without(status, "lost", 70, failure, summary, by)


def cancelled_outcome(status: dict[str, Any] | None, summary: str, by: str) -> dict[str, Any]:
    """Return the outcome of an attempt that was asked to stop, and whose supervisor wrote none."""
    return _ended_without(status, "cancelled", 130, None, summary, by)


def _ended_without(
    status: dict[str, Any] | None,
    state: str,
    exit_code: int,
    failure: str | None,
    summary: str,
    by: str,
) -> dict[str, Any]:
    last = status or {}
    ranks = last.get("ranks") or []
    succeeded = bool(ranks) and all(rank.get("exit_code") == 0 for rank in ranks)
    base = {
        "v": 1,
        "started_at": last.get("started_at"),
        "ended_at": last.get("ended_at") or attempt_files.stamp(),
        "restart": last.get("restart", 0),
        "restarts": last.get("restarts", []),
        "by": by,
        **({"mlflow": last["mlflow"]} if "mlflow" in last else {}),
    }
    if succeeded:
        return {**base, "state": "succeeded", "exit_code": 0, "class": None,
                "first_cause": None, "ranks": ranks}  # fmt: skip
    active = ("queued", "starting", "running", "stopping")
    cut_short = "lost" if failure else "stopped"
    return {
        **base,
        "state": state,
        "exit_code": exit_code,
        "class": failure,
        "first_cause": {"rank": None, "class": failure, "summary": summary, "traceback": None,
                        "simultaneous": []},
        "ranks": [
            {**rank, "state": cut_short} if rank.get("state") in active else rank for rank in ranks
        ],
    }  # fmt: skip
