"""Attempts on a Ray cluster: what the driver wrote, and the job that it is."""

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from sgpu_decl.agent.attempt.attempt_files import STATUS
from sgpu_decl.agent.attempt.report_check import is_report
from sgpu_decl.backends.base import Elsewhere, LogReader
from sgpu_decl.backends.ray.api.cluster_tables import find_job, session_of
from sgpu_decl.backends.ray.api.dashboard_connection import budgeted
from sgpu_decl.backends.ray.cluster.job_verdict import ACTIVE, final_outcome, judge
from sgpu_decl.backends.ray.clusters import Clusters
from sgpu_decl.backends.ray.head.head_place import HeadPlace
from sgpu_decl.backends.remote.launching.launch_hosts import NOT_NAMED
from sgpu_decl.backends.remote.launching.remote_launches import RemoteLaunches, is_started
from sgpu_decl.backends.remote.launching.remote_reference import reference_facts
from sgpu_decl.backends.remote.staging.remote_layout import LOGS
from sgpu_decl.backends.remote.watching.node_logs import NodeLogReader, NodeLogs, SharedLogs
from sgpu_decl.backends.remote.watching.remote_attempts import RemoteAttempts
from sgpu_decl.backends.remote.watching.remote_status import RemoteStatus
from sgpu_decl.errors import BackendError
from sgpu_decl.model.attempt import AttemptRef
from sgpu_decl.model.attempt_view import AttemptView, view_in
from sgpu_decl.model.jsonable import Json
from sgpu_decl.model.launch import LaunchRecord
from sgpu_decl.places.file_place import PlaceMissing, cut_short, get_object

_SILENT = 120.0  # seconds after which a driver is gone that writes its status every 30 s


class RayAttempts(RemoteAttempts):
    poll_seconds = 0.5

    def __init__(self, launches: RemoteLaunches, clusters: Clusters) -> None:
        super().__init__(launches)
        self._clusters = clusters
        self._several = False  # whether `look` is asked about several attempts
        self._known: dict[str, dict[str, Any]] = {}  # what drivers wrote last, by token

    def look(self, records: Sequence[LaunchRecord]) -> Mapping[AttemptRef, AttemptView]:
        self._several = len(records) > 1
        with self._clusters.asking(record.token for record in records):
            return super().look(records)

    def status(self, record: LaunchRecord, marker: Mapping[str, Any]) -> RemoteStatus:
        if not is_started(marker):
            return RemoteStatus(view=view_in(record, {"state": "staging"}))
        memory = self._launches.memory
        status: Mapping[str, Any] | None = memory.get(record).get("outcome")
        final = True
        try:
            if status is None:
                status, final = self._attempt_status(record, marker)
        except BackendError as error:
            if not error.retryable:
                raise
            # A cluster that does not answer may run it all the same, unless it has ended.
            driver_status = self._last_driver_status(record)
            ended = self._end_without_cluster(record, driver_status)
            if ended is None:
                known = view_in(record, driver_status)
                silent = replace(known, unavailable=error.message, way_out=_way_out(record))
                return RemoteStatus(view=silent)
            status, final = ended
        links = {"ray": f"{marker['address']}/#/jobs/{record.token}"}
        view = replace(view_in(record, status), links=links)
        tracked = status.get("mlflow")
        if view.state.active:
            seen: Json = {name: status.get(name) for name in ("state", "started_at")}
            if seen != memory.get(record).get("seen"):
                memory.remember(record, seen=seen)
            return RemoteStatus(view=view, tracked=tracked)
        try:
            brought = self._launches.results(record).newest()
            if final and brought is not None:
                self._keep_results(record, brought, view)
        except BackendError as error:
            if not error.retryable:
                raise
            # How it ended is known; the next look brings the rest.
            if final:
                memory.remember(record, outcome=dict(status))
            return RemoteStatus(view=replace(view, unavailable=error.message), tracked=tracked)
        return RemoteStatus(view=view, brought=brought, final=final, tracked=tracked)

    def barrier(self, record: LaunchRecord) -> Elsewhere | None:
        place = reference_facts(record)
        if "address" not in place:
            return None
        dashboard = self._clusters.at(place["address"], record.owner)
        if place.get("machine") not in (None, os.uname().nodename):
            try:
                same = session_of(dashboard) == place["session"]
            except BackendError:  # nothing, or something else, answers here by this address
                same = False
            if not same:
                return _elsewhere(
                    record, f"`{place['address']}` is an address of {place['machine']}"
                )
        on_head = isinstance(self._launches.area(record).files, HeadPlace)
        if on_head or self._launches.marker(record) is not None:
            return None
        if session_of(dashboard) != place["session"]:
            return None  # what that session ran has ended with it
        job = find_job(dashboard, record.token)
        if job is None:
            return None
        folder, area = self._launches.folder(record), self._launches.area(record)
        if job["status"] not in ACTIVE and area.files.list(area.layout.root_around(folder)):
            return None
        return _elsewhere(record, f"its job is there, and `{folder}` is not to be seen here")

    def refused(self, record: LaunchRecord, error: BackendError) -> Elsewhere | None:
        """A cluster that does not answer now, and maybe never will again."""
        place = reference_facts(record)
        if error.code == NOT_NAMED:
            return _elsewhere(record, error.message)
        if not error.retryable or "address" not in place:
            return None
        return replace(_elsewhere(record, error.message), retryable=True)

    def exits(self, record: LaunchRecord) -> bool:
        """Whether the driver of an attempt has written its outcome, and goes on."""
        marker = self._launches.marker(record)
        if marker is None or not is_started(marker) or self.active(record):
            return False
        dashboard = self._clusters.at(marker["address"], record.owner)
        try:
            job = find_job(dashboard, record.token)
        except BackendError:
            if isinstance(self._launches.area(record).files, HeadPlace):
                raise
            return False  # what lies in a storage outlives its cluster
        if job is None or job["status"] not in ACTIVE:
            return False
        return self._clusters.answers(dashboard).lives(job)

    def log(self, record: LaunchRecord, ranks: Sequence[int] | None, *, follow: bool) -> LogReader:
        folder = f"{self._launches.folder(record)}/{LOGS}"
        files = self._launches.area(record).files
        logs = HeadLogs(files, folder) if isinstance(files, HeadPlace) else SharedLogs(folder)
        return NodeLogReader(
            record.ref,
            logs,
            lambda: self.active(record),
            lambda: self.require_folder(record),
            ranks,
            follow=follow,
        )

    def why_gone(self, record: LaunchRecord) -> str:
        if not isinstance(self._launches.area(record).files, HeadPlace):
            return super().why_gone(record)
        return (
            "files on the head node end with their session of Ray; `backend.storage` keeps them "
            "longer"
        )

    def _attempt_status(
        self, record: LaunchRecord, marker: Mapping[str, Any]
    ) -> tuple[Mapping[str, Any], bool]:
        """What is known of an attempt, as `view_in` reads it, and whether it will not change."""
        driver_status = self._driver_status(record)
        if driver_status["state"] == "ended":
            return driver_status["outcome"], True
        dashboard = self._clusters.at(marker["address"], record.owner)
        answers = self._clusters.answers(dashboard)
        job = answers.job(record.token, several=self._several)
        goes_on = job is not None and job["status"] in ACTIVE
        if not goes_on:
            driver_status = self._driver_status(record)  # the driver writes it before it ends
            if driver_status["state"] == "ended":
                return driver_status["outcome"], True
        # Another program, and another cluster, answer that they have no such job.
        if job is None and session_of(dashboard) != marker["session"] and _alive(driver_status):
            raise _another_session(marker["address"])
        alive = job is None or not goes_on or answers.lives(job)
        outcome = None if goes_on and alive else self._agents_outcome(record, driver_status)
        stop = self._launches.memory.get(record).get("stop")
        status = judge(job, driver_status, outcome, driver_alive=alive, now=time.time(), stop=stop)
        return status, not goes_on

    def _end_without_cluster(
        self, record: LaunchRecord, driver_status: Mapping[str, Any]
    ) -> tuple[Mapping[str, Any], bool] | None:
        """How an attempt ended by the launch folder alone, and whether its nodes have brought back
        all; None if it may go on."""
        if driver_status["state"] == "ended":
            return driver_status["outcome"], True
        try:
            outcome = self._agents_outcome(record, driver_status)
            if outcome is None:
                return None
            results = self._launches.results(record)
            return outcome, bool(results.report(results.newest() or 0, 0))
        except BackendError:
            return None  # the folder cannot be read either

    def _agents_outcome(
        self, record: LaunchRecord, driver_status: Mapping[str, Any]
    ) -> Mapping[str, Any] | None:
        """The outcome of the node agents, if the attempt ended with it."""
        results = self._launches.results(record)
        brought = results.newest()
        outcome = results.outcome(brought) if brought is not None else None
        return final_outcome(outcome, driver_status, self._launches.retry(record))

    def _keep_results(self, record: LaunchRecord, brought: int, view: AttemptView) -> None:
        """Bring the results here that would end with the session of Ray."""
        if isinstance(self._launches.area(record).files, HeadPlace):
            results = self._launches.results(record)
            with budgeted(on=False):  # they may be large
                results.values(brought, [(rank.rank, rank.node_rank or 0) for rank in view.ranks])

    def _last_driver_status(self, record: LaunchRecord) -> dict[str, Any]:
        """What the driver wrote last, as far as that is known without its cluster."""
        try:
            return self._driver_status(record)
        except BackendError:
            seen = self._known.get(record.token) or self._launches.memory.get(record).get("seen")
            return dict(seen or {"state": "starting"})

    def _driver_status(self, record: LaunchRecord) -> dict[str, Any]:
        """What the driver wrote last. Raises BackendError where that is not whole here."""
        path = f"{self._launches.folder(record)}/{STATUS}"
        try:
            status = get_object(self._launches.area(record).files, path)
        except PlaceMissing:
            return {"state": "starting"}
        # A driver that has ended has another state than attempts have.
        if not ("state" in status and is_report({**status, "state": "starting"})):
            raise cut_short(path)
        self._known[record.token] = status
        return status


def _elsewhere(record: LaunchRecord, why: str) -> Elsewhere:
    address = reference_facts(record).get("address")
    launched = f"it was launched on the Ray cluster at {address}; " if address else ""
    return Elsewhere(
        reason=f"{launched}{why}",
        hint=_way_out(record),
    )


def _way_out(record: LaunchRecord) -> str:
    return (
        "give this command where that cluster can be reached. If it is gone for good, "
        f"`sgpu state rm {record.ref.address}` removes the run from the state and stops nothing"
    )


def _alive(driver_status: Mapping[str, Any]) -> bool:
    """Whether the driver wrote its status not long ago. Clocks may differ by some seconds."""
    written = driver_status.get("alive_at")
    return written is not None and time.time() - _seconds(written) < _SILENT


def _seconds(stamp: str) -> float:
    return datetime.fromisoformat(stamp).timestamp()


def _another_session(address: str) -> BackendError:
    error = BackendError(
        f"another session of Ray answers at `{address}`, and the driver of the run lives",
        hint="see that this address leads to the cluster that the run was submitted to",
        code="unavailable",
    )
    error.retryable = True
    return error


class HeadLogs(NodeLogs):
    """`ATTEMPT/NODE/CHUNK.log` below `folder` of the head; see `cluster/log_copies.py`."""

    def __init__(self, files: HeadPlace, folder: str) -> None:
        self._files = files
        self._folder = folder
        # Chunk, bytes of it that were read, and the beginning of a line that goes on in the next.
        self._at: dict[tuple[int, int], tuple[int, int, bytes]] = {}

    def new_lines(self, *, last: bool) -> Iterator[tuple[int, bytes]]:
        """See `NodeLogs`; all lines are whole. What cannot be read now comes later. Raises
        BackendError if nobody asks later."""
        chunks: dict[tuple[int, int], list[int]] = {}
        for path in self._files.names(self._folder, "*/*/*.log"):
            attempt, node, name = path.split("/")[-3:]
            number = int(name.removesuffix(".log"))
            chunks.setdefault((int(attempt), int(node)), []).append(number)
        for place, numbers in sorted(chunks.items()):
            first, offset, begun = self._at.get(place, (0, 0, b""))
            for number in range(first, max(numbers) + 1):
                path = f"{self._folder}/{place[0]}/{place[1]}/{number}.log"
                content = self._files.find(path)
                if content is None and last:
                    raise self._files.unreadable(path)
                if content is None and number < max(numbers):  # it is complete
                    break
                new = (content or b"")[offset:]
                end = new.rfind(b"\n")
                lines, begun = (begun + new[:end], b"") if end >= 0 else (b"", begun)
                offset += end + 1
                if number < max(numbers):
                    begun += new[end + 1 :]
                    self._at[place] = (number + 1, 0, begun)
                else:
                    self._at[place] = (number, offset, begun)
                if end >= 0:
                    yield place[1], lines
                offset = 0
