"""The lines of a run's ranks: all nodes, all attempts of the platform, followed while it goes on.

The platform's log service is asked; where a workspace has none, the chunks that it keeps beside the
MLflow run are read.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from sgpu_decl.backends.base import LogLine
from sgpu_decl.backends.databricks.chunks import chunk_records
from sgpu_decl.backends.databricks.complaints import Rejected, Unknown
from sgpu_decl.backends.databricks.connecting import Connection
from sgpu_decl.backends.databricks.following import OFTEN
from sgpu_decl.backends.databricks.lines import Record, Seen, line_of
from sgpu_decl.errors import BackendError
from sgpu_decl.model.attempt import AttemptRef

__all__ = ["read_lines"]

_BACK = 30  # seconds that are asked for once more: lines of some nodes come late
_PAGE = 5_000
_SECOND = 1_000_000_000
_NO_SERVICE = frozenset({"permission_denied", "remote_broken", "remote_refused"})

Run = Callable[[], dict[str, Any] | None]


def read_lines(
    ref: AttemptRef,
    connection: Connection,
    run: Run,
    *,
    ranks: Sequence[int] | None,
    follow: bool,
    output: Callable[[int], dict[str, Any]],
) -> Iterator[LogLine | None]:
    """Yield the lines of an attempt.

    Args:
        run: gives the run as the Jobs API shows it, at most a second old.
        ranks: which ranks, or `None` for all and what nodes say themselves.
        follow: go on until the run has ended; a quiet moment yields `None`.
        output: gives what the platform says of the tracking of a task's run.
    """
    wanted = None if ranks is None else frozenset(ranks)
    readers: dict[int, _Attempt] = {}
    looked = float("-inf")
    while True:
        if follow and time.monotonic() - looked < OFTEN:
            yield None
            continue
        shown = run()
        # Looked at before its lines are read: what it wrote until it ended is there then.
        over = not follow or shown is None or bool((shown.get("state") or {}).get("result_state"))
        for task in sorted((shown or {}).get("tasks") or (), key=_number):
            number = _number(task)
            if number not in readers:
                readers[number] = _Attempt(connection, shown or {}, task, output)
            for record in readers[number].records():
                line = line_of(ref, record)
                if wanted is None or line.rank in wanted:
                    yield line
        looked = time.monotonic()
        if over:
            return


class _Attempt:
    """The log of one attempt of the platform, and how much of it was read."""

    def __init__(
        self,
        connection: Connection,
        run: dict[str, Any],
        task: dict[str, Any],
        output: Callable[[int], dict[str, Any]],
    ) -> None:
        self._connection = connection
        self._run_id = int(run["run_id"])
        self._task_run_id = int(task["run_id"])
        self._number = _number(task)
        self._output = output
        self._seen = Seen()
        self._ended = False
        self._chunks = False

    def records(self) -> list[Record]:
        """What is new since the last call, in the order of time."""
        if not self._chunks:
            try:
                return self._from_service()
            except Unknown:
                return []  # it has not come to a log yet
            except Rejected:
                self._chunks = True
            except BackendError as error:
                if error.code not in _NO_SERVICE:
                    raise
                self._chunks = True
        tracked = self._output(self._task_run_id)
        run_id = tracked.get("mlflow_run_id")
        if not run_id:
            return []
        found = list(chunk_records(self._connection, str(run_id), self._number))
        return self._seen.new(found, 0)

    def _from_service(self) -> list[Record]:
        since = max(0, self._seen.last_ns // _SECOND - _BACK)
        found: list[Record] = []
        token: str | None = None
        while True:
            query: dict[str, Any] = {
                "ref.attempt_number": self._number,
                "page_size": _PAGE,
                "ascending": "true",
            }
            if since:
                query["from"] = since
            if token is not None:
                query["page_token"] = token
            page: dict[str, Any] = self._connection.ask(
                f"reading the logs of run {self._run_id}",
                f"/api/2.0/ai-training/workflows/by-run-id/{self._run_id}/logs",
                **query,
            )
            found += [
                Record(int(it["time_unix_nano"]), int(it.get("node_index") or 0), str(it["body"]))
                for it in page.get("log_records") or ()
            ]
            token = page.get("next_page_token")
            if not token:
                return self._seen.new(found, since * _SECOND)


def _number(task: dict[str, Any]) -> int:
    return int(task.get("attempt_number") or 0)
