"""The lines of a run's ranks: all nodes, all attempts of the platform, followed while it goes on.

The platform's log service is asked; where a workspace has none, or where it has nothing of an
attempt that has ended, the chunks are read that the platform keeps beside the MLflow run. Some
workspaces have the one, some the other, and some lose both.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from sgpu_decl.backends.base import LogReader
from sgpu_decl.backends.databricks.api.connection import Connection
from sgpu_decl.backends.databricks.api.sdk_errors import Rejected
from sgpu_decl.backends.databricks.watching.log_chunks import (
    Artifacts,
    artifacts_of,
    node_chunks,
    node_records,
)
from sgpu_decl.backends.remote.files import RemoteMissing
from sgpu_decl.backends.remote.log_lines import Deduplicator, NodeLine, line_of
from sgpu_decl.errors import BackendError, NotFound
from sgpu_decl.model.attempt import AttemptRef
from sgpu_decl.model.rank_output import LogLines

__all__ = ["WorkspaceLog"]

_BACK = 30  # seconds that are asked for once more: lines of some nodes come late
_PAGE = 5_000
_SECOND = 1_000_000_000
_SELDOM = 10.0  # seconds between two looks for chunks of an attempt that ended without a log
_NO_SERVICE = frozenset({"permission_denied", "remote_broken", "remote_refused"})
_NO_API = frozenset({"ENDPOINT_NOT_FOUND", "FEATURE_DISABLED"})

Run = Callable[[], dict[str, Any] | None]


class WorkspaceLog(LogReader):
    """The log of an attempt.

    Args:
        run: gives the run as the Jobs API shows it, at most a second old.
        ranks: which ranks, or `None` for all and what nodes say themselves.
        follow: go on until the run has ended. If no log of a run that had nodes is to be found, a
            line says so then; otherwise that is an error.
        output: gives what the platform says of the tracking of a task's run.
    """

    def __init__(
        self,
        ref: AttemptRef,
        connection: Connection,
        run: Run,
        *,
        ranks: Sequence[int] | None,
        follow: bool,
        output: Callable[[int], dict[str, Any]],
    ) -> None:
        self._ref = ref
        self._connection = connection
        self._run = run
        self._ranks = None if ranks is None else frozenset(ranks)
        self._follow = follow
        self._output = output
        self._readers: dict[int, _Attempt] = {}

    def read(self) -> tuple[Iterable[LogLines], bool]:
        shown = self._run() or {}
        # Looked at before its lines are read: what it wrote until it ended is there then.
        ended = not shown or bool((shown.get("state") or {}).get("result_state"))
        over = ended or not self._follow
        return self._lines(shown, over=over), over

    def _lines(self, shown: dict[str, Any], *, over: bool) -> Iterator[LogLines]:
        for task in sorted(shown.get("tasks") or (), key=_number):
            number = _number(task)
            if number not in self._readers:
                self._readers[number] = _Attempt(self._connection, shown, task, self._output)
            for record in self._readers[number].records(task):
                line = line_of(self._ref, record)
                if self._ranks is None or line.rank in self._ranks:
                    yield line
        deleted = not shown and not self._follow  # or not visible yet, which following waits for
        if not over or not (deleted or _all_lost(shown, self._readers.values())):
            return
        error = _nothing(self._ref, self._connection.host)
        if not self._follow:
            raise error
        text = f"sgpu: {error.message}; {error.hint}"
        yield LogLines(ref=self._ref, rank=None, stream="stderr", text=text)


def _all_lost(run: dict[str, Any], readers: Iterable["_Attempt"]) -> bool:
    """Whether a run that has ended had nodes, and no log of any of them is there."""
    ended = bool((run.get("state") or {}).get("result_state"))
    began = any(task.get("execution_duration") for task in run.get("tasks") or ())
    return ended and began and not any(reader.found for reader in readers)


def _nothing(ref: AttemptRef, host: str) -> NotFound:
    return NotFound(
        f"`{host}` has no log of `{ref}`: neither its log service nor the artifacts of its MLflow "
        "run have one",
        hint=f"`sgpu show '{ref}'` says how it ended; ask who manages the workspace whether logs "
        "of AI Runtime are kept, or use a later `env.base`",
        code="no_logs",
    )


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
        self._seen = Deduplicator()
        self._chunks = False
        self._artifacts: Artifacts | None = None
        self._looked = float("-inf")
        self.found = False

    def records(self, task: dict[str, Any]) -> list[NodeLine]:
        """What is new since the last call, in the order of time. `found` says whether there ever
        was a log.

        Args:
            task: how this attempt stands.
        """
        records = [] if self._chunks else self._asked()
        ended = bool((task.get("state") or {}).get("result_state"))
        lacking = ended and not self.found and time.monotonic() - self._looked > _SELDOM
        if not records and (self._chunks or lacking):
            self._looked = time.monotonic()
            records = self._from_chunks(whole=ended)
        self.found = self.found or bool(records)
        return records

    def _asked(self) -> list[NodeLine]:
        """What the log service has, as long as there is one."""
        try:
            return self._from_service()
        except RemoteMissing as error:  # or it has not come to a log yet
            self._chunks = getattr(error.__cause__, "error_code", None) in _NO_API
        except Rejected:
            self._chunks = True
        except BackendError as error:
            if error.code not in _NO_SERVICE:
                raise
            self._chunks = True
        return []

    def _from_chunks(self, *, whole: bool) -> list[NodeLine]:
        run = self._output(self._task_run_id).get("mlflow_run_id")
        if not run:
            return []
        if self._artifacts is None:
            self._artifacts = artifacts_of(self._connection, str(run))
        found: list[NodeLine] = []
        for node, chunks in node_chunks(self._artifacts, self._number):
            self.found = self.found or bool(chunks)
            found += node_records(self._artifacts, node, chunks, whole=whole)
        # Further lines come from where the first did: times of the service are others.
        self._chunks = self._chunks or bool(found)
        return self._seen.new(found, 0)

    def _from_service(self) -> list[NodeLine]:
        since = max(0, self._seen.last_ns // _SECOND - _BACK)
        found: list[NodeLine] = []
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
                NodeLine(
                    int(item["time_unix_nano"]), int(item.get("node_index") or 0), str(item["body"])
                )
                for item in page.get("log_records") or ()
            ]
            token = page.get("next_page_token")
            if not token:
                return self._seen.new(found, since * _SECOND)


def _number(task: dict[str, Any]) -> int:
    return int(task.get("attempt_number") or 0)
