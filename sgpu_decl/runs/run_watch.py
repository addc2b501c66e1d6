"""One attempt, looked at again and again: what `sgpu top` shows."""

import time
from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING

from sgpu_decl.diagnostics.amounts import read_duration
from sgpu_decl.model.attempt_view import AttemptView
from sgpu_decl.model.rank_activity import RankActivity, WatchedRun
from sgpu_decl.planner.estimate import gpus_of
from sgpu_decl.runs.stragglers import LOOKS, stragglers

if TYPE_CHECKING:
    from sgpu_decl.backends.base import Attempts, LogReader
    from sgpu_decl.model.launch import LaunchRecord

_KEPT = 500  # lines of a log


class RunWatch:
    """`attempts` are those of the backend that the attempt was launched on."""

    def __init__(self, attempts: "Attempts", record: "LaunchRecord") -> None:
        self._attempts = attempts
        self._record = record
        self._reader = attempts.activity(record)
        self._looks: deque[Sequence[RankActivity]] = deque(maxlen=LOOKS)
        self._measured: datetime | None = None
        self._rank, self._due = -1, 0.0
        self._log: LogReader | None = None
        self._lines: deque[str] = deque(maxlen=_KEPT)

    def look(self, view: AttemptView, now: datetime) -> WatchedRun:
        """The attempt, which was just seen as `view`, with what its ranks do."""
        fields = self._record.inputs.spec.fields
        limit = fields.get("timeout")
        run = WatchedRun(
            view=view,
            gpus=gpus_of(fields),
            gpu_type=str(fields.get("type", "")),
            limit_seconds=None if limit is None else read_duration(str(limit)),
        )
        if self._reader is None or view.unavailable is not None:
            return run
        at, ranks = self._reader.look(view)
        if at is not None and at == self._measured and self._looks:
            self._looks[-1] = ranks
        else:
            self._looks.append(ranks)
            self._measured = at
        running = [rank.rank for rank in view.ranks if rank.state == "running"]
        differ = stragglers(tuple(self._looks), running, now)
        marked = tuple(replace(one, differs=differ.get(one.rank)) for one in ranks)
        return replace(run, told=True, measured_at=at, ranks=marked)

    def newest_lines(self, view: AttemptView, rank: int) -> Sequence[str]:
        """The last lines of a rank's log.

        Raises:
            BackendError: its platform does not answer.
        """
        if self._reader is not None:
            lines = self._reader.newest_lines(view, rank)
            if lines is not None:
                return lines
        if self._rank != rank:
            self._rank = rank
            self._log = self._attempts.logs(self._record, ranks=[rank], follow=True)
            self._lines.clear()
            self._due = 0.0
        if self._log is not None and time.monotonic() >= self._due:
            self._due = time.monotonic() + self._attempts.poll_seconds
            logs, ended = self._log.read()
            for log in logs:
                self._lines.extend(log.lines)
            self._log = None if ended else self._log
        return self._lines
