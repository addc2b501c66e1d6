"""Attempts on Slurm: what their jobs wrote, and what Slurm says of them."""

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from sgpu_decl.agent.attempt.attempt_files import SPEC
from sgpu_decl.agent.attempt.upstreams import listed
from sgpu_decl.backends.attempt_layout import AttemptLayout
from sgpu_decl.backends.base import Elsewhere, LogReader
from sgpu_decl.backends.box.box_mirror import BoxMirror
from sgpu_decl.backends.box.boxes import Box
from sgpu_decl.backends.box.ssh_process import UNREACHABLE
from sgpu_decl.backends.remote.launching.launch_hosts import NOT_NAMED
from sgpu_decl.backends.remote.launching.remote_launches import is_started
from sgpu_decl.backends.remote.watching.node_logs import NodeLogReader, NodeLogs, SharedLogs
from sgpu_decl.backends.remote.watching.remote_attempts import RemoteAttempts
from sgpu_decl.backends.remote.watching.remote_status import (
    PlatformEnding,
    RemoteStatus,
    ended_status,
)
from sgpu_decl.backends.slurm.cluster_state import SlurmJob
from sgpu_decl.backends.slurm.job.launch_files import (
    ARRAY,
    CANCEL,
    CLAIM,
    JOB_LOG,
    LAUNCH,
    LOGS,
    NOTE,
    VALUES,
)
from sgpu_decl.backends.slurm.login_nodes import SlurmLaunches
from sgpu_decl.backends.slurm.slurm_verdict import ACTIVE, WAITING, judge, times
from sgpu_decl.backends.slurm.submission import job_name
from sgpu_decl.errors import BackendError
from sgpu_decl.model.attempt import AttemptState
from sgpu_decl.model.attempt_view import AttemptView, view_in
from sgpu_decl.model.jsonable import Json
from sgpu_decl.model.launch import LaunchRecord
from sgpu_decl.places.file_place import PlaceMissing, get_object

_VISIBLE = 60.0  # seconds until this machine sees what nodes wrote last
_SHOWN = 400  # characters of a line
_SELDOM = 20.0  # seconds between two questions about a job that runs


class SlurmAttempts(RemoteAttempts):
    """Slurm is asked seldom: a job says itself that it has started and ended."""

    poll_seconds = 1.0
    _launches: SlurmLaunches

    def __init__(self, launches: SlurmLaunches, layout: AttemptLayout) -> None:
        super().__init__(launches)
        self._mirror = BoxMirror(layout, self._on_box)
        self._running: dict[str, float] = {}  # when Slurm said last that a job runs, by token

    def status(self, record: LaunchRecord, marker: Mapping[str, Any]) -> RemoteStatus:
        if not is_started(marker):
            return RemoteStatus(view=view_in(record, {"state": "staging"}))
        memory = self._launches.memory
        try:
            status = self._status_there(record, marker)
        except BackendError as error:
            if error.code != UNREACHABLE:
                raise
            view = view_in(record, memory.get(record).get("seen") or {"state": "starting"})
            return RemoteStatus(view=_unknown(view, error))
        view = status.view
        if self._launches.node(record).box is not None and view.state.active:
            started = view.started_at.isoformat() if view.started_at is not None else None
            seen: Json = {"state": view.state, "started_at": started}
            if seen != memory.get(record).get("seen"):
                memory.remember(record, seen=seen)
        return status

    def _status_there(self, record: LaunchRecord, marker: Mapping[str, Any]) -> RemoteStatus:
        note, cancelled = self._read(record, NOTE), self._has(record, CANCEL)
        number = note.get("job", marker["job"])
        links = {"folder": self._launches.folder(record), "job": number}
        box = self._launches.node(record).box
        if box is not None:
            links["host"] = box.host
        job, unknown = None, None
        if not (note.get("state") == "ended" and note["stop"] is None):
            try:
                job = self._job(record, marker, note, cancelled=cancelled)
                note = self._read(record, NOTE)  # it may have ended before Slurm was asked
            except BackendError as error:
                if not error.retryable or error.code == UNREACHABLE:
                    raise
                unknown = error
        if unknown is not None and note.get("stop", "signal") == "signal":
            seen = {"state": "running" if note else "queued", "started_at": note.get("started_at")}
            view = replace(view_in(record, seen), links=links)
            return RemoteStatus(view=_unknown(view, unknown))
        words = "" if note else self._last_words(record)
        behind = ""
        if job is not None and job.reason == "Dependency":
            upstreams = self._read(record, LAUNCH).get("upstreams", ())
            behind = listed([one["name"] for one in upstreams if one["waits"]])
        found = judge(job, note, cancelled=cancelled, words=words, behind=behind)
        if not isinstance(found, PlatformEnding):
            return RemoteStatus(view=replace(view_in(record, found), links=links))
        return self._ended(record, found, note, job, links)

    def barrier(self, record: LaunchRecord) -> Elsewhere | None:
        layout, folder = self._launches.area(record).layout, self._launches.folder(record)
        root = layout.root_around(folder)
        if self._launches.node(record).box is not None or os.path.isdir(root):
            return None
        return Elsewhere(
            reason=f"its files are in `{root}`, which this machine does not have",
            hint="give this command on a login node of its cluster",
        )

    def refused(self, record: LaunchRecord, error: BackendError) -> Elsewhere | None:  # noqa: ARG002
        if error.code not in (UNREACHABLE, NOT_NAMED):
            return None
        return Elsewhere(
            reason=error.message, hint=error.hint or "try again", retryable=error.retryable
        )

    def _ended(
        self, record: LaunchRecord, ending: PlatformEnding, note: Mapping[str, Any],
        job: SlurmJob | None, links: Mapping[str, Any],
    ) -> RemoteStatus:  # fmt: skip
        when = times(job, note)
        view = replace(view_in(record, {"state": ending.state, **when}), links=links)
        results = self._launches.results(record)
        ago = datetime.now(UTC) - datetime.fromisoformat(str(when["ended_at"]))
        complete = not note or ago.total_seconds() > _VISIBLE
        brought = results.newest()
        outcome = results.outcome(brought) if brought is not None else None
        began = note.get("state") == "ended" and "started_at" in note
        if outcome is None and not complete and began:
            return RemoteStatus(view=replace(view, state=AttemptState.STOPPING, ended_at=None))
        status = ended_status(
            record, view, ending, results,
            retry=self._launches.retry(record), nodes=bool(note), complete=complete,
        )  # fmt: skip
        if status.final:
            with suppress(PlaceMissing):
                self._launches.area(record).files.delete(f"{links['folder']}/{VALUES}")
        tracked = outcome.get("mlflow") if outcome is not None else None
        return replace(status, tracked=tracked)

    def log(self, record: LaunchRecord, ranks: Sequence[int] | None, *, follow: bool) -> LogReader:
        logs: NodeLogs = SharedLogs(f"{self._launches.folder(record)}/{LOGS}")
        if self._launches.node(record).box is not None:
            logs = _CopiedLogs(record, self._mirror, follow=follow)
        return NodeLogReader(
            record.ref,
            logs,
            lambda: self.active(record),
            lambda: self.require_folder(record),
            ranks,
            follow=follow,
        )

    def _job(
        self, record: LaunchRecord, marker: Mapping[str, Any], note: Mapping[str, Any],
        *, cancelled: bool,
    ) -> SlurmJob | None:  # fmt: skip
        """The job that has the launch; before one took it, one that may. Raises BackendError."""
        started = note.get("state") == "started"
        if started and time.monotonic() - self._running.get(record.token, 0.0) < _SELDOM:
            return SlurmJob(id=note["job"], name=note["name"], state="RUNNING")
        jobs = self.jobs(record, marker)
        if not jobs and note.get("state") != "ended" and (note or not cancelled):
            known = self._launches.node(record).commands.accounted(note.get("job", marker["job"]))
            jobs = [one for one in known if one.state not in WAITING | ACTIVE]
        alive = [one for one in jobs if one.state in WAITING | ACTIVE]
        job = next(iter(alive or jobs), None)
        if started and job is not None and job.state == "RUNNING":
            self._running[record.token] = time.monotonic()
        return job

    def jobs(self, record: LaunchRecord, marker: Mapping[str, Any]) -> Sequence[SlurmJob]:
        """The job that has the launch; before one took it, all that may. Raises BackendError."""
        commands, names = self._launches.node(record).commands, self.job_names(record, marker)
        jobs = [
            job for name, task in names.items() for job in commands.jobs(name) if job.task == task
        ]
        claim = self._read(record, CLAIM)
        if not claim:
            return jobs
        own = [one for one in jobs if one.id == claim["job"]]
        return own or commands.job(claim["job"])  # somebody gave it another name

    def job_names(self, record: LaunchRecord, marker: Mapping[str, Any]) -> Mapping[str, str]:
        """The names that a job of it may have, each with its `task`."""
        names, array = {marker.get("name") or job_name(record): ""}, self._read(record, ARRAY)
        return {**names, array["name"]: f"_{array['task']}"} if array else names

    def _on_box(self, record: LaunchRecord) -> Sequence[tuple[Box, str]]:
        box = self._launches.node(record).box
        return [(box, self._launches.folder(record))] if box is not None else []

    def _read(self, record: LaunchRecord, name: str) -> dict[str, Any]:
        try:
            files = self._launches.area(record).files
            return get_object(files, f"{self._launches.folder(record)}/{name}")
        except PlaceMissing:
            return {}

    def _last_words(self, record: LaunchRecord) -> str:
        """The last line of the log of its job."""
        try:
            path = f"{self._launches.folder(record)}/{JOB_LOG}"
            text = self._launches.area(record).files.get(path).decode(errors="replace")
        except PlaceMissing:
            return ""
        return text.strip().rpartition("\n")[2].removeprefix("sgpu: ")[:_SHOWN]

    def _has(self, record: LaunchRecord, name: str) -> bool:
        path = f"{self._launches.folder(record)}/{name}"
        return self._launches.area(record).files.stat(path) is not None


class _CopiedLogs(NodeLogs):
    """The logs in a copy of the launch folder: what is new is brought before each look. Whoever
    follows them waits for a login node that is away."""

    def __init__(self, record: LaunchRecord, mirror: BoxMirror, *, follow: bool) -> None:
        self._record = record
        self._follow = follow
        self._mirror = mirror
        self._logs = SharedLogs(os.fspath(mirror.folder(record) / LOGS))

    def new_lines(self, *, last: bool) -> Iterator[tuple[int, bytes]]:
        away = None
        try:
            self._mirror.pull(self._record, (SPEC, f"{LOGS}/*/*.log"))
        except BackendError as error:
            away = error
        yield from self._logs.new_lines(last=last)
        if away is not None and not (self._follow and away.retryable and not last):
            raise away


def _unknown(view: AttemptView, error: BackendError) -> AttemptView:
    return replace(view, unavailable=error.message, way_out=error.hint)
