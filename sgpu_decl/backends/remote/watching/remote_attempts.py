"""Attempts of remote backends: what nodes brought back, by launch folder."""

import time
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from contextvars import copy_context
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sgpu_decl.backends.base import Attempts, Elsewhere, LogReader
from sgpu_decl.backends.launch_request import NO_CONFIG
from sgpu_decl.backends.remote.launching.remote_launches import RemoteLaunches
from sgpu_decl.backends.remote.watching.remote_status import RemoteStatus
from sgpu_decl.errors import BackendError, NotFound
from sgpu_decl.model.attempt import AttemptRef, AttemptState
from sgpu_decl.model.attempt_details import progress_in, rank_wait_in
from sgpu_decl.model.attempt_view import AttemptView, status_fields
from sgpu_decl.model.jsonable import Json, canonical
from sgpu_decl.model.launch import LaunchRecord
from sgpu_decl.model.rank_output import Output
from sgpu_decl.model.run_usage import RunUsage, idle_in, usage_in
from sgpu_decl.model.step_progress import Progress
from sgpu_decl.places.file_place import PlaceMissing
from sgpu_decl.tracking.mlflow_status import outcome
from sgpu_decl.tracking.open_runs import OpenRun

if TYPE_CHECKING:
    from sgpu_decl.backends.activity_reader import ActivityReader
    from sgpu_decl.backends.remote.staging.staging_area import StagingArea
    from sgpu_decl.backends.remote.watching.remote_results import RemoteResults
    from sgpu_decl.config.run import RunConfig

_LOOKS = 8  # attempts that are asked about at once
_FIRST_TOLD, _TOLD = 10.0, 15.0  # seconds: until a run is asked how far it is, and between two


@dataclass(frozen=True, slots=True)
class LaunchPlace:
    """Where a launch lies: its launch folder, and the staging area that this is in."""

    area: "StagingArea"
    folder: str

    @property
    def run(self) -> str:
        """The folder of all launches of its run."""
        return self.folder.rpartition("/")[0]

    @property
    def run_key(self) -> str:
        """Tells that folder from one with the same path in another staging area."""
        return f"{self.run} {canonical(self.area.key)}"

    @property
    def name(self) -> str:
        """Its name in there."""
        return self.folder.rpartition("/")[2]


@dataclass(frozen=True, slots=True)
class _ReturnedFiles:
    """What nodes brought back of an attempt: where, and in which attempt of the platform."""

    results: "RemoteResults"
    attempt: int
    view: AttemptView

    @property
    def nodes(self) -> list[tuple[int, int]]:
        """Each rank, and its node."""
        return [(rank.rank, rank.node_rank or 0) for rank in self.view.ranks]


class RemoteAttempts(Attempts):
    """Attempts that a `RemoteLauncher` started: their markers say it. A backend says how
    they stand (`status`), and reads their logs. Nodes mark the lines of ranks, and not those of
    restarts."""

    def __init__(self, launches: "RemoteLaunches") -> None:
        self._launches = launches
        self._looks = ThreadPoolExecutor(_LOOKS, thread_name_prefix="look")
        self._told: dict[AttemptRef, tuple[float, Mapping[str, Any]]] = {}

    @abstractmethod
    def status(self, record: LaunchRecord, marker: Mapping[str, Any]) -> "RemoteStatus":
        """An attempt as it is now, by its marker and by what the platform says."""

    def barrier(self, record: LaunchRecord) -> Elsewhere | None:  # noqa: ARG002  a default
        """Why what is known here of an attempt that is not known to have ended says nothing: it was
        launched on another platform, or the platform hides it from this user.

        Raises:
            BackendError: the platform does not answer.
        """
        return None

    def refused(self, record: LaunchRecord, error: BackendError) -> Elsewhere | None:  # noqa: ARG002
        """What an error says of the attempt that was asked for. None if it is about more than this
        attempt, and is to be raised."""
        return None

    def without_folder(self, record: LaunchRecord) -> "RemoteStatus | None":  # noqa: ARG002
        """How an attempt stands whose launch folder is not there; None where nobody knows."""
        return None

    @abstractmethod
    def log(self, record: LaunchRecord, ranks: Sequence[int] | None, *, follow: bool) -> LogReader:
        """See `logs`."""

    def close(self) -> None:
        """End the threads that ask about attempts; a request that is under way is not waited
        for."""
        self._looks.shutdown(wait=False, cancel_futures=True)

    def look(self, records: Sequence[LaunchRecord]) -> Mapping[AttemptRef, AttemptView]:
        # Each may take requests, so several are asked about at once, in the context of this call.
        answers = self._looks.map(
            lambda context, record: context.run(self._answer, record),
            [copy_context() for _ in records],
            records,
        )
        return {
            record.ref: answer.view
            for record, answer in zip(records, answers, strict=True)
            if answer is not None and not isinstance(answer, Elsewhere)
        }

    def elsewhere(self, record: LaunchRecord) -> Elsewhere | None:
        answer = self._answer(record)
        return answer if isinstance(answer, Elsewhere) else None

    def place(self, record: LaunchRecord) -> LaunchPlace | None:
        """Where a launch lies; None where nothing was begun."""
        place = self.planned_place(record)
        return place if place.area.files.list(place.folder) else None

    def planned_place(self, record: LaunchRecord) -> LaunchPlace:
        """Where a launch lies, if something was begun."""
        return LaunchPlace(self._launches.area(record), self._launches.folder(record))

    def logs(
        self,
        record: LaunchRecord,
        *,
        ranks: Sequence[int] | None,
        follow: bool,
        restart: int | None = None,
    ) -> LogReader:
        if restart is not None:
            raise BackendError(
                f"the log of `{record.ref}` does not say which restart a line is of",
                hint="leave `--restart` out",
                code="no_restarts",
            )
        return self.log(record, ranks, follow=follow)

    def forget(self, record: LaunchRecord) -> None:
        """What this machine had of an attempt was deleted."""
        self._launches.memory.forget(record.ref)

    def active(self, record: LaunchRecord) -> bool:
        """Whether an attempt has not ended."""
        status = self._status(record)
        return status is not None and status.view.state.active

    def results(self, record: LaunchRecord) -> list[dict[str, Json]]:
        back = self._returned(record)
        if back is None:
            self.require_folder(record)
            return []
        absent = [node for _, node in back.nodes if not back.results.report(back.attempt, node)]
        if absent:
            self.require_folder(record)
        if absent and back.view.state is AttemptState.SUCCEEDED:
            raise BackendError(
                f"the results of node {min(absent)} of `{record.ref}` are not visible here yet, "
                "although the run succeeded",
                hint="try again in a minute: its launch folder may show late what nodes wrote",
                code="nothing_yet",
            )
        try:
            return back.results.values(back.attempt, back.nodes)
        except PlaceMissing:
            self.require_folder(record)
            raise

    def output(self, record: LaunchRecord, progress: Progress) -> Output:
        fetched = self._fetched(record)
        if fetched is not None:
            return fetched
        if self.active(record):
            raise BackendError(
                f"`{record.ref}` has not ended: its nodes bring back the files of ranks at its end",
                hint=f"`sgpu wait '{record.ref}'` waits for that",
                code="nothing_yet",
            )
        self.require_folder(record)
        back = self._returned(record)
        if back is None:
            raise BackendError(
                f"nothing of `{record.ref}` was brought back from its nodes",
                hint=f"`sgpu show '{record.ref}'` says how it ended",
                code="nothing_yet",
            )
        output = back.results.output(back.attempt, progress)
        if not output.lacking:
            facts = {"files": output.files, "bytes": output.bytes}
            self._launches.memory.remember(record, fetched=facts)
        return output

    def _fetched(self, record: LaunchRecord) -> Output | None:
        """The output that was fetched whole, and is still here: nobody has to be asked for it."""
        facts = self._launches.memory.get(record).get("fetched")
        if facts is None:
            return None
        folder = self._launches.kept(record) / "output"
        sizes = [path.stat().st_size for path in folder.rglob("*") if path.is_file()]
        if (len(sizes), sum(sizes)) != (facts["files"], facts["bytes"]):
            return None
        return Output(folder=folder, files=len(sizes), bytes=sum(sizes))

    def node_files(self, record: LaunchRecord, name: str) -> Mapping[int, Path]:
        back = self._returned(record)
        return {} if back is None else back.results.node_files(back.attempt, name)

    def left_output(self, record: LaunchRecord, config: "RunConfig") -> bool:
        """A launch looks where its own folder lies: not in another `storage`, and not where the
        run had another name."""
        if not self._launches.shares_area(record, config):
            return False
        run = self._launches.folder(record).split("/")[-2]
        if run.partition("@")[0] != config.name:  # of a cell, `name@hash`
            return False
        return self._launches.results(record).left_output()

    def output_place(self, record: LaunchRecord) -> str | None:
        if not self._launches.results(record).left_output():
            return None
        return self.planned_place(record).run_key

    def error(self, record: LaunchRecord, rank: int) -> bytes | None:
        back = self._returned(record)
        node = dict(back.nodes).get(rank) if back is not None else None
        if back is None or node is None:
            return None
        return back.results.error(back.attempt, rank, node, back.view.restart)

    def require_folder(self, record: LaunchRecord) -> None:
        """Refuse to read an attempt that left something, and whose launch folder is gone.

        Raises:
            NotFound: it is.
        """
        # The second is remembered where a program of ours starts the nodes, and wrote how it ended.
        left = self._returned(record) is not None or "outcome" in self._launches.memory.get(record)
        if not left or self.place(record) is not None:
            return
        fetched = self._launches.kept(record) / "output"
        before = f"Files that were fetched before are in `{fetched}`. " if fetched.exists() else ""
        raise NotFound(
            f"the files of `{record.ref}` are gone: there is no folder "
            f"`{self._launches.folder(record)}`",
            hint=f"{self.why_gone(record)}. {before}`sgpu show '{record.ref}'` has what is "
            "recorded",
            code="attempt_freed",
        )

    def why_gone(self, record: LaunchRecord) -> str:  # noqa: ARG002  a default
        """What may be the reason that a launch folder is gone."""
        return "`sgpu gc`, `sgpu destroy` or a person deleted it, or it cannot be seen from here"

    def _answer(self, record: LaunchRecord) -> "RemoteStatus | Elsewhere | None":
        """How an attempt stands, or why that cannot be said here; None where nothing was begun."""
        try:
            ended = "ended" in self._launches.memory.get(record)
            return (None if ended else self.barrier(record)) or self._status(record)
        except BackendError as error:
            if error.code == NO_CONFIG:
                return Elsewhere(reason=error.message, hint=error.hint or "")
            elsewhere = self.refused(record, error)
            if elsewhere is None:
                raise
            return elsewhere

    def _status(self, record: LaunchRecord) -> "RemoteStatus | None":
        """None where nothing was begun. How an attempt has ended is asked once."""
        ended = self._launches.memory.get(record).get("ended")
        if ended:
            return RemoteStatus.from_json(record, ended)
        marker = self._launches.marker(record)
        if marker is None:
            return self.without_folder(record)
        status = with_tracking(self.status(record, marker))
        memory = self._launches.memory
        if status.view.unavailable is not None:
            return replace(
                status, view=replace(status.view, unknown_since=memory.answered_at(record))
            )
        memory.note_answer(record)
        if status.view.state is AttemptState.RUNNING:
            return self._with_progress(record, status)
        if status.final:
            note_open_run(self._launches, record, status)
            self._launches.memory.remember(record, ended=status.to_json())
        return status

    def _with_progress(self, record: LaunchRecord, status: "RemoteStatus") -> "RemoteStatus":
        """With how far a run is by its monitor, which is asked now and then: not in the first
        moments of a run. With its ranks, too, where the platform names none."""
        from sgpu_decl.backends.monitor_activity import running_ranks

        started, now = status.view.started_at, datetime.now(UTC)
        if started is None or (now - started).total_seconds() < _FIRST_TOLD:
            return status
        asked, seen = self._told.get(record.ref, (float("-inf"), {}))
        if time.monotonic() - asked >= _TOLD:
            with suppress(BackendError):
                results = self._launches.results(record)
                attempt = results.newest()
                seen = {} if attempt is None else results.monitor(attempt)
            self._told[record.ref] = (time.monotonic(), seen)
        told = replace(
            status.view,
            ranks=status.view.ranks or running_ranks(seen),
            progress=progress_in(seen.get("progress")),
            idle=idle_in(seen.get("idle")),
            rank_wait=rank_wait_in(seen.get("rank_wait")),
        )
        return replace(status, view=told)

    def past_usage(self, record: LaunchRecord) -> RunUsage | None:
        ended = self._launches.memory.get(record).get("ended")
        return usage_in(ended.get("usage")) if isinstance(ended, Mapping) else None

    def activity(self, record: LaunchRecord) -> "ActivityReader":
        """It is as old as `look` has it: nothing is asked for it."""
        from sgpu_decl.backends.monitor_activity import MonitorActivity

        return MonitorActivity(lambda: self._told.get(record.ref, (0.0, {}))[1])

    def _returned(self, record: LaunchRecord) -> _ReturnedFiles | None:
        """What nodes brought back; None where that is nothing yet."""
        status = self._status(record)
        if status is None or status.brought is None:
            return None
        return _ReturnedFiles(self._launches.results(record), status.brought, status.view)


def with_tracking(status: RemoteStatus) -> RemoteStatus:
    """Return a status whose links name the MLflow run."""
    if not status.tracked:
        return status
    links = {**status.view.links, "mlflow": dict(status.tracked)}
    return replace(status, view=replace(status.view, links=links))


def note_open_run(launches: RemoteLaunches, record: LaunchRecord, status: RemoteStatus) -> None:
    """Have the next command close the MLflow run of an attempt that has ended, if its tracker could
    not: the server did not answer, or the node was lost."""
    tracked = status.tracked or {}
    run_id, uri = tracked.get("run_id"), tracked.get("tracking_uri")
    if not (isinstance(run_id, str) and isinstance(uri, str)):
        return
    results, attempt = launches.results(record), status.brought
    report = results.report(attempt, 0) if attempt is not None else {}
    if report and not report["open_run"]:
        return
    failure = str(status.view.failure) if status.view.failure else None
    with (
        suppress(OSError),  # a project that cannot be written: the run stays open
        OpenRun.begin(launches.home, record.token, launches.kept(record)) as entry,
    ):
        entry.note_created(run_id, uri)
        entry.note_end(outcome({**status_fields(status.view), "class": failure}))
