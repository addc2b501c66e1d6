"""What the attempt tells of itself: status, events and the one outcome."""

from __future__ import annotations

import os
import time

from sgpu_decl.agent import attempt_files
from sgpu_decl.agent.fast_stdlib import signal_name
from sgpu_decl.agent.folder_handle import FolderHandle

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from sgpu_decl.agent.verdict import RankEnding

__all__ = ["AttemptRecord", "cancelled_outcome", "lost_outcome", "rank_entry"]


_RESTARTS_KEPT = 20
_SUMMARY_KEPT = 500  # characters


def rank_entry(rank: int, node: int) -> dict[str, Any]:
    """Return a rank that has not started: the form of the status contract."""
    return {"rank": rank, "node_rank": node, "state": "queued", "exit_code": None, "signal": None}


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
        each = ranks // nodes
        self.ranks = [rank_entry(rank, rank // each) for rank in range(ranks)]
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
        """Return the time by the wall clock as it was at the start, whatever it was set to since.

        So an attempt never ends before it started.
        """
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
        """Note why the ranks are started again, after `backoff` seconds.

        Only the newest restarts are kept, since the outcome must fit into the space set aside.
        """
        self.snapshot["restarts"] = [
            *self.snapshot["restarts"][1 - _RESTARTS_KEPT :],
            {
                "restart": number,
                "at": self._now(),
                "starts_at": self._now(backoff),
                "rank": cause["rank"],
                "class": cause["class"],
                "summary": cause["summary"][:_SUMMARY_KEPT],
            },
        ]
        self.event("restart", restart=number, after=cause["class"], backoff=backoff)
        self.update(waiting_for="backoff")

    def rank(self, rank: int, **fields: object) -> None:
        self.ranks[rank].update(fields)
        self._dirty = True

    def ended(self, ending: RankEnding, restart: int, dropped: int = 0) -> None:
        """Note how a rank ended. Which ranks failed by themselves is known only once all have
        ended. `dropped` bytes of its output are in no log."""
        if dropped:
            self.rank(ending.rank, dropped_bytes=dropped)
            self.event("output_dropped", rank=ending.rank, bytes=dropped)
        name = None if ending.signal is None else signal_name(ending.signal)
        state = "failed" if ending.failed else "succeeded"
        self.rank(ending.rank, state=state, exit_code=ending.exit_code, signal=name)
        self.event(
            "rank_ended", rank=ending.rank, exit_code=ending.exit_code, signal=name, restart=restart
        )

    def settle(self, endings: Sequence[RankEnding], failed: frozenset[int]) -> None:
        """Give each rank its last state: those in `failed` failed by themselves."""
        for ending in endings:
            ended = "stopped" if ending.failed else "succeeded"
            self.rank(ending.rank, state="failed" if ending.rank in failed else ended)
            self.ranks[ending.rank].pop("pid", None)

    def flush(self) -> None:
        """Write the snapshot if it changed since the last time, and let the disk have the events.

        Called once per turn of the loop: what a turn starts never waits for the disk first.
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

    def conclude(self, **fields: object) -> bool:
        """Write the outcome; say whether it is this one that counts.

        Raises:
            OSError: it cannot be written; whoever stands above then writes what it knows.
        """
        os.close(self._spare)  # the outcome needs one descriptor at a time, and now there is one
        self.update(ended_at=self._now(), waiting_for=None, **fields)
        outcome = {
            "v": 1,
            **self.snapshot,
            "by": "supervisor",
            "ended_mono_ns": time.monotonic_ns(),
            "events_dropped": self._log.dropped,
        }
        if self._handle.deleted:
            return False  # nobody could find it
        self._handle.check()
        ours = attempt_files.write_once(
            self._folder, attempt_files.OUTCOME, attempt_files.encode(outcome)
        )
        self.event("state", state=self.snapshot["state"])
        self.flush()
        return ours


def lost_outcome(
    status: dict[str, Any] | None, failure: str, summary: str, by: str
) -> dict[str, Any]:
    """Return the outcome of an attempt whose supervisor left no verdict.

    If every rank had already ended with 0 the attempt succeeded all the same.
    """
    return _ended_without(status, "lost", 70, failure, summary, by)


def cancelled_outcome(status: dict[str, Any] | None, summary: str, by: str) -> dict[str, Any]:
    """Return the outcome of an attempt that was asked to stop, whose supervisor left no verdict."""
    return _ended_without(status, "cancelled", 130, None, summary, by)


def _ended_without(
    status: dict[str, Any] | None,
    state: str,
    exit_code: int,
    failure: str | None,
    summary: str,
    by: str,
) -> dict[str, Any]:
    known = dict(status or {})
    ranks = known.get("ranks") or []
    done = bool(ranks) and all(rank.get("exit_code") == 0 for rank in ranks)
    base = {
        "v": 1,
        "started_at": known.get("started_at"),
        "ended_at": known.get("ended_at") or attempt_files.stamp(),
        "restart": known.get("restart", 0),
        "restarts": known.get("restarts", []),
        "by": by,
    }
    if done:
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
