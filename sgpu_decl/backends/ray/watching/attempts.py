"""Attempts on a Ray cluster: what the driver wrote, and the job that it is."""

import json
import os
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from sgpu_decl.backends.base import LogReader
from sgpu_decl.backends.ray.api.dashboard import Dashboard
from sgpu_decl.backends.ray.clusters import Clusters
from sgpu_decl.backends.ray.launching.jobs import find_job, session_of
from sgpu_decl.backends.ray.watching.job_verdict import ACTIVE, judge
from sgpu_decl.backends.ray.watching.logs import RayLog
from sgpu_decl.backends.remote.attempts import RemoteAttempts
from sgpu_decl.backends.remote.files import RemoteMissing
from sgpu_decl.backends.remote.launches import RemoteLaunches, is_started
from sgpu_decl.backends.remote.remote_status import RemoteStatus
from sgpu_decl.errors import BackendError
from sgpu_decl.model.attempt_view import view_in
from sgpu_decl.model.launch import LaunchRecord

_STATUS = "status.json"
_SELDOM = 5.0  # seconds between two looks at the nodes of a cluster


class RayAttempts(RemoteAttempts):
    poll_seconds = 0.5

    def __init__(self, launches: RemoteLaunches, clusters: Clusters) -> None:
        super().__init__(launches)
        self._clusters = clusters
        self._nodes = _LivingNodes()

    def status(self, record: LaunchRecord, marker: Mapping[str, Any]) -> RemoteStatus:
        if not is_started(marker):
            return RemoteStatus(view=view_in(record, {"state": "staging"}))
        try:
            seen, final = self._seen(record, marker)
        except BackendError as error:
            if not error.retryable:
                raise
            # A cluster that does not answer may run it all the same.
            known = view_in(record, self._said(record))
            return RemoteStatus(view=replace(known, unavailable=error.message))
        links = {"ray": f"{marker['address']}/#/jobs/{record.token}"}
        view = replace(view_in(record, seen), links=links)
        if view.state.active:
            return RemoteStatus(view=view)
        return RemoteStatus(view=view, brought=self._launches.results(record).newest(), final=final)

    def log(self, record: LaunchRecord, ranks: Sequence[int] | None, *, follow: bool) -> LogReader:
        folder = os.path.join(self._launches.folder(record), "logs")
        return RayLog(record.ref, folder, lambda: self.active(record), ranks, follow=follow)

    def _seen(
        self, record: LaunchRecord, marker: Mapping[str, Any]
    ) -> tuple[Mapping[str, Any], bool]:
        """What is known of an attempt, as `view_in` reads it, and whether it will not change."""
        said = self._said(record)
        if said["state"] == "ended":
            return said["outcome"], True
        dashboard = self._clusters.at(marker["address"])
        job = find_job(dashboard, record.token)
        goes_on = job is not None and job["status"] in ACTIVE
        if not goes_on:
            said = self._said(record)  # the driver writes it before it ends
            if said["state"] == "ended":
                return said["outcome"], True
        if job is None:
            session_of(dashboard)  # another program may answer that it has no such job
        alive = not goes_on or self._nodes.alive(dashboard, job or {})
        results = self._launches.results(record)
        brought = None if goes_on and alive else results.newest()
        outcome = results.outcome(brought) if brought is not None else None
        return judge(job, said, outcome, driver_alive=alive, now=time.time()), not goes_on

    def _said(self, record: LaunchRecord) -> dict[str, Any]:
        """What the driver wrote last."""
        path = f"{self._launches.folder(record)}/{_STATUS}"
        try:
            said: dict[str, Any] = json.loads(self._launches.area(record).files.get(path))
        except RemoteMissing:
            return {"state": "starting"}
        return said


class _LivingNodes:
    """Which nodes of a cluster live, asked now and then."""

    def __init__(self) -> None:
        self._seen: dict[str, tuple[float, frozenset[str]]] = {}
        self._lock = threading.Lock()

    def alive(self, dashboard: Dashboard, job: Mapping[str, Any]) -> bool:
        """Whether the node of a job's driver lives, as far as Ray knows where that is."""
        node = job.get("driver_node_id")
        return not node or node in self._living(dashboard)

    def _living(self, dashboard: Dashboard) -> frozenset[str]:
        url = dashboard.address.url
        with self._lock:
            asked_at, nodes = self._seen.get(url, (float("-inf"), frozenset[str]()))
            if time.monotonic() - asked_at > _SELDOM:
                nodes = _living_nodes(dashboard)
                self._seen[url] = (time.monotonic(), nodes)
            return nodes


def _living_nodes(dashboard: Dashboard) -> frozenset[str]:
    path = "/api/v0/nodes"
    answer = dashboard.get(path, limit=10_000)
    rows = dashboard.part(path, answer, "data.result.result", list)
    return frozenset(row["node_id"] for row in rows if row.get("state") == "ALIVE")
