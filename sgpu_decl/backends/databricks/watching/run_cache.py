"""Runs as the Jobs API shows them, requested at most once a second."""

import threading
import time
from typing import Any

from sgpu_decl.backends.databricks.api.connection import Connection
from sgpu_decl.places.file_place import PlaceMissing

OFTEN = 1.0  # seconds between two looks at a run
_LISTED = 25  # runs on a page, the most that the API gives
_SELDOM = 5.0  # seconds between two looks for an MLflow run that is not named yet


class RunCache:
    """The runs of one workspace."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._runs: dict[int, tuple[float, dict[str, Any] | None]] = {}
        self._tracked: dict[int, tuple[float, dict[str, Any]]] = {}
        self._lock = threading.Lock()

    def run(self, run_id: int, *, afresh: bool = False) -> dict[str, Any] | None:
        """A run with all its attempts; `None` where the workspace has no such run.

        Args:
            afresh: look now, whenever the last look was.
        """
        with self._lock:
            asked_at, run = self._runs.get(run_id, (float("-inf"), None))
        if afresh or time.monotonic() - asked_at >= OFTEN:
            run = self._ask(run_id)
            with self._lock:
                self._runs[run_id] = (time.monotonic(), run)
        return run

    def listed(self, most: int) -> set[int] | None:
        """The ids of the submitted runs that this user sees; None if they are more than pages of
        `most` runs show.

        Source of the query: https://docs.databricks.com/api/workspace/jobs/listruns
        """
        found: set[int] = set()
        doing, api = "listing the runs", "/api/2.2/jobs/runs/list"
        pages = self._connection.pages(doing, api, run_type="SUBMIT_RUN", limit=_LISTED)
        for number, page in enumerate(pages, start=1):
            found |= {int(run["run_id"]) for run in page.get("runs") or ()}
            if page.get("next_page_token") and number * _LISTED >= most:
                return None
        return found

    def tracked(self, task_run_id: int) -> dict[str, Any]:
        """The same as `output`, asked until it names an MLflow run, now and then."""
        asked_at, output = self._tracked.get(task_run_id, (float("-inf"), {}))
        if not output.get("mlflow_run_id") and time.monotonic() - asked_at > _SELDOM:
            output = self.output(task_run_id)
            self._tracked[task_run_id] = (time.monotonic(), output)
        return output

    def output(self, task_run_id: int) -> dict[str, Any]:
        """The MLflow run of an attempt of the platform, and what the attempt waits for; empty if
        that is not known yet."""
        answer = self._connection.find(
            f"looking at run {task_run_id}", "/api/2.2/jobs/runs/get-output", run_id=task_run_id
        )
        return (answer or {}).get("ai_runtime_task_output") or {}

    def _ask(self, run_id: int) -> dict[str, Any] | None:
        run: dict[str, Any] = {}
        doing, api = f"looking at run {run_id}", "/api/2.2/jobs/runs/get"
        try:
            for page in self._connection.pages(doing, api, run_id=run_id):
                run = {**page, "tasks": [*run.get("tasks", ()), *(page.get("tasks") or ())]}
        except PlaceMissing:
            return None
        return run
