"""What a cluster said last of its jobs and nodes: a command asks once about all attempts."""

import threading
import time
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from sgpu_decl.backends.ray.api.cluster_tables import find_job, head_among, list_jobs, list_nodes
from sgpu_decl.backends.ray.api.dashboard import Dashboard

_SELDOM = 5.0  # seconds between two looks at the nodes, or for which a list of jobs is used


class ClusterAnswers:
    """The answers of one dashboard. Calls may come from several threads; each raises BackendError
    if the dashboard does not answer."""

    def __init__(self, dashboard: Dashboard) -> None:
        self._dashboard = dashboard
        self._jobs_at = self._nodes_at = float("-inf")
        self._jobs: tuple[Mapping[str, Any], ...] = ()
        self._unused: dict[str, Mapping[str, Any]] = {}  # jobs that nobody looked at, by token
        self._nodes: frozenset[str] = frozenset()
        self._head: str | None = None
        self._lock = threading.Lock()

    def jobs(self) -> Sequence[Mapping[str, Any]]:
        """All jobs, as they were a moment ago."""
        with self._lock:
            if time.monotonic() - self._jobs_at > _SELDOM:
                self._list_jobs()
            return self._jobs

    def job(self, token: str, *, several: bool) -> Mapping[str, Any] | None:
        """The job of a launch; None if the cluster has none. Who asks again gets a new answer.

        Args:
            several: others are asked about, too: one request for all jobs is enough.
        """
        with self._lock:
            known = token in self._unused and time.monotonic() - self._jobs_at < _SELDOM
            if several and not known:
                self._list_jobs()
            job = self._unused.pop(token, None) if several or known else None
        # It may have been submitted since the list was made.
        return job if job is not None else find_job(self._dashboard, token)

    def lives(self, job: Mapping[str, Any]) -> bool:
        """Whether the node of a job's driver lives, as far as Ray knows where that is."""
        node = job.get("driver_node_id")
        if not node:
            return True
        with self._lock:
            if time.monotonic() - self._nodes_at > _SELDOM:
                self._read_nodes()
            return node in self._nodes

    def head(self) -> str | None:
        """The id of the head, as it was a moment ago; None if none was alive."""
        with self._lock:
            if time.monotonic() - self._nodes_at > _SELDOM:
                self._read_nodes()
            return self._head

    def note_nodes(self, nodes: Collection[str], head: str | None) -> None:
        """The nodes that are alive, and the head among them, as somebody else was told."""
        with self._lock:
            self._note(nodes, head)

    def _read_nodes(self) -> None:
        rows = list_nodes(self._dashboard)
        self._note([row["node_id"] for row in rows], head_among(self._dashboard, rows))

    def _note(self, nodes: Collection[str], head: str | None) -> None:
        self._nodes, self._nodes_at = frozenset(nodes), time.monotonic()
        self._head = head

    def _list_jobs(self) -> None:
        jobs = list_jobs(self._dashboard)
        self._jobs, self._jobs_at = tuple(jobs.values()), time.monotonic()
        self._unused = jobs
