"""Runs as the Jobs API shows them, looked at no more often than it makes sense to."""

import threading
import time
from typing import Any

from sgpu_decl.backends.databricks.api.connection import Connection
from sgpu_decl.backends.remote.files import RemoteMissing

__all__ = ["OFTEN", "RunCache"]

OFTEN = 1.0  # seconds between two looks at a run
_SELDOM = 5.0  # seconds between two looks for an MLflow run that is not named yet


class RunCache:
    """The runs of one workspace that somebody watches."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._seen: dict[int, tuple[float, dict[str, Any] | None]] = {}
        self._tracked: dict[int, tuple[float, dict[str, Any]]] = {}
        self._lock = threading.Lock()

    def run(self, run_id: int, *, afresh: bool = False) -> dict[str, Any] | None:
        """A run with all its attempts; `None` where the workspace has no such run.

        Args:
            afresh: look now, whenever the last look was.
        """
        now = time.monotonic()
        with self._lock:
            seen = self._seen.get(run_id)
        if seen is not None and not afresh and now - seen[0] < OFTEN:
            return seen[1]
        found = self._ask(run_id)
        with self._lock:
            self._seen[run_id] = (time.monotonic(), found)
        return found

    def tracked(self, task_run_id: int) -> dict[str, Any]:
        """The same as `output`, asked until it names an MLflow run, now and then."""
        looked, told = self._tracked.get(task_run_id, (float("-inf"), {}))
        if not told.get("mlflow_run_id") and time.monotonic() - looked > _SELDOM:
            told = self.output(task_run_id)
            self._tracked[task_run_id] = (time.monotonic(), told)
        return told

    def output(self, task_run_id: int) -> dict[str, Any]:
        """What the platform says of an attempt's tracking, and what it waits for; empty where that
        is not known yet."""
        try:
            answer = self._connection.ask(
                f"looking at run {task_run_id}",
                "/api/2.2/jobs/runs/get-output",
                run_id=task_run_id,
            )
        except RemoteMissing:
            return {}
        told: dict[str, Any] = answer.get("ai_runtime_task_output") or {}
        return told

    def _ask(self, run_id: int) -> dict[str, Any] | None:
        found: dict[str, Any] = {}
        page: dict[str, Any] = {}
        while not found or page.get("next_page_token"):
            token = page.get("next_page_token")
            query: dict[str, Any] = {"run_id": run_id, **({"page_token": token} if token else {})}
            try:
                page = self._connection.ask(
                    f"looking at run {run_id}", "/api/2.2/jobs/runs/get", **query
                )
            except RemoteMissing:
                return None
            tasks = [*(found.get("tasks") or ()), *(page.get("tasks") or ())]
            found = {**page, "tasks": tasks}
        return found
