"""Attempts on boxes: how they stand is asked there, and what they left is read from copies."""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sgpu_decl.agent.attempt.attempt_files import SPEC
from sgpu_decl.agent.attempt.attempt_status import read_attempt
from sgpu_decl.agent.notices.notice_process import read_notices
from sgpu_decl.backends.activity_reader import ActivityReader
from sgpu_decl.backends.attempt_layout import AttemptLayout
from sgpu_decl.backends.base import Elsewhere, LogReader, NoLog
from sgpu_decl.backends.box.box_launches import BoxLaunches
from sgpu_decl.backends.box.box_mirror import (
    ACTIVITY,
    OUTPUT,
    RECORD,
    RESULTS,
    BoxMirror,
    log_names,
    node_folder,
)
from sgpu_decl.backends.box.boxes import Box, ask_all
from sgpu_decl.backends.host.folder_attempts import FolderAttempts, links_of, with_files
from sgpu_decl.backends.rank_values import output_files
from sgpu_decl.errors import BackendError
from sgpu_decl.model.attempt import AttemptRef, AttemptState
from sgpu_decl.model.attempt_view import AttemptView, notices_in, view_in
from sgpu_decl.model.jsonable import Json
from sgpu_decl.model.launch import LaunchRecord
from sgpu_decl.tracking.store_location import is_on_disk

if TYPE_CHECKING:
    from datetime import datetime

    from sgpu_decl.config.run import RunConfig
    from sgpu_decl.model.rank_activity import RankActivity
    from sgpu_decl.model.rank_output import LogLines, Output
    from sgpu_decl.model.step_progress import Progress
    from sgpu_decl.tracking.last_metrics import MetricSource

_AWAY = 10.0  # seconds for which a box that did not answer is not asked again


class BoxAttempts(FolderAttempts):
    """What a box does not answer is unknown, and never lost."""

    poll_seconds = 0.5

    def __init__(
        self, launches: BoxLaunches, mirror: BoxMirror, layout: AttemptLayout,
        environ: Mapping[str, str], project: Path,
    ) -> None:  # fmt: skip
        super().__init__(layout, environ, project)
        self._launches = launches
        self._mirror = mirror
        self._away: dict[Box, tuple[float, BackendError]] = {}

    def look(self, records: Sequence[LaunchRecord]) -> Mapping[AttemptRef, AttemptView]:
        views = {}
        places: dict[AttemptRef, Sequence[tuple[Box, str]]] = {}
        for record in records:
            if self._mirror.has_ended(record):
                views[record.ref] = view_in(record, read_attempt(self._layout.found(record)))
                continue
            try:
                places[record.ref] = self._launches.places(record)
            except BackendError as error:
                views |= self._as_seen(record, error)
        asked = [record for record in records if record.ref in places]
        firsts = self._seen([places[record.ref][0] for record in asked])
        for record in asked:
            first, *others = places[record.ref]
            found = firsts[first]
            if isinstance(found, BackendError):
                views |= self._without_first(record, found, others)
            elif found is not None:
                views[record.ref] = self._looked(record, found)
        return {record.ref: views[record.ref] for record in records if record.ref in views}

    def elsewhere(self, record: LaunchRecord) -> Elsewhere | None:
        if self._mirror.has_ended(record):
            return None
        error = self._problem(record)
        if error is None:
            try:
                self._launches.ask(record, "staged")
            except BackendError as refused:
                error = refused
        if error is None:
            return None
        return Elsewhere(
            reason=error.message, hint=error.hint or "try again", retryable=error.retryable
        )

    def _stacks(
        self, record: LaunchRecord, ranks: Sequence[int] | None
    ) -> Sequence[Mapping[str, Any]]:
        each = self._launches.ask_each(record, "stacks", ranks=ranks)
        found: dict[int, dict[str, Any]] = {}
        for one in (one for answer in each for one in answer["stacks"]):
            if one["stack"] is not None or one["rank"] not in found:
                found[one["rank"]] = one
        return [found[rank] for rank in sorted(found)]

    def results(self, record: LaunchRecord) -> list[dict[str, Json]]:
        self._mirror.pull(record, RESULTS)
        return super().results(record)

    def output(self, record: LaunchRecord, progress: "Progress") -> "Output":
        self._mirror.pull(record, OUTPUT, progress)
        return output_files(self._mirror.merge_output(record))

    def node_files(self, record: LaunchRecord, name: str) -> Mapping[int, Path]:
        folder = self._mirror.pull(record, (name,))
        nodes = range(len(self._launches.boxes(record)))
        paths = {node: node_folder(folder, node) / name for node in nodes}
        return {node: path for node, path in paths.items() if path.is_file()}

    def left_output(self, record: LaunchRecord, config: "RunConfig") -> bool:  # noqa: ARG002
        return self.output_place(record) is not None

    def output_place(self, record: LaunchRecord) -> str | None:
        facts = self._launches.ask_each(record, "facts_of")
        for (box, folder), there in zip(self._launches.places(record), facts, strict=True):
            if there["output"]:
                return f"{box.host}:{box.storage}/{folder.rpartition('/')[0]}"
        return None

    def metric_source(
        self, record: LaunchRecord, link: Mapping[str, Json]
    ) -> "MetricSource | None":
        if "host" not in link:
            return super().metric_source(record, link)
        from sgpu_decl.backends.box.box_store import BoxStore
        from sgpu_decl.tracking.last_metrics import UnreadMetrics

        try:
            (box, folder), *_ = self._launches.places(record)
        except BackendError as error:
            return UnreadMetrics(error.message)
        return BoxStore(box=box, uri=str(link["tracking_uri"]), attempt=folder)

    def error(self, record: LaunchRecord, rank: int) -> bytes | None:
        self._mirror.pull(record, (f"ranks/{rank}/*/error.pkl",))
        return super().error(record, rank)

    def logs(
        self,
        record: LaunchRecord,
        *,
        ranks: Sequence[int] | None,
        follow: bool,
        restart: int | None = None,
    ) -> LogReader:
        folder, away = self._mirror.folder(record), None
        try:
            self._mirror.pull(record, RECORD if follow else (*RECORD, *log_names(ranks)))
        except BackendError as error:
            if follow or not (folder / "ranks").is_dir():
                raise
            away = error
        if not (folder / SPEC).exists():
            return NoLog()
        log = super().logs(record, ranks=ranks, follow=follow, restart=restart)
        return log if away is None else _CopiedLog(log, away)

    def unresolved_secrets(self, record: LaunchRecord) -> tuple[str, ...]:
        if not (self._folder(record) / SPEC).exists():
            self._mirror.pull(record, RECORD)
        return super().unresolved_secrets(record)

    def activity(self, record: LaunchRecord) -> ActivityReader:
        self._mirror.pull(record, RECORD)
        return _CopiedActivity(
            super().activity(record), lambda: self._mirror.pull(record, ACTIVITY)
        )

    def inspect(self, records: Sequence[LaunchRecord]) -> Mapping[AttemptRef, AttemptView]:
        views = self.look(records)
        return {
            record.ref: self._inspected(record, views[record.ref])
            for record in records
            if record.ref in views
        }

    def _inspected(self, record: LaunchRecord, view: AttemptView) -> AttemptView:
        folder = self._folder(record)
        if view.unavailable is None and not self._mirror.has_ended(record):
            self._mirror.pull(record, RECORD)
        left: tuple[int, ...] = ()
        if view.state is AttemptState.LOST and self._problem(record) is None:
            left = tuple(self._left(record))
        box = self._launches.box(record)
        there = f"{box.storage}/{self._launches.folder(record)}"
        hosts = ", ".join(box.host for box in self._launches.boxes(record))
        links = links_of(folder)
        tracked = links.get("mlflow")
        if isinstance(tracked, Mapping) and is_on_disk(str(tracked.get("tracking_uri") or "http:")):
            links["mlflow"] = {**tracked, "host": box.host}
        return replace(
            view,
            first_cause=with_files(view.first_cause, folder),
            links={**links, "host": hosts, "folder": there, "output": f"{there}/output"},
            notices=notices_in(read_notices(str(folder))),
            processes_left=left,
        )  # fmt: skip

    def _left(self, record: LaunchRecord) -> Iterator[int]:
        """Processes that a lost attempt left on boxes that answer."""
        for box, folder in self._launches.places(record):
            if self._away_error(box) is None:
                found = box.ask("look", folders=[folder], remains=True)["left"]
                yield from (pid for pids in found.values() for pid in pids)

    def _seen(
        self, places: Sequence[tuple[Box, str]]
    ) -> "dict[tuple[Box, str], dict[str, Any] | BackendError | None]":
        """What boxes say of attempts in these folders, or why they do not answer. All are asked at
        once."""
        folders: dict[Box, list[str]] = {}
        for box, folder in places:
            folders.setdefault(box, []).append(folder)

        def ask(box: Box) -> "Sequence[dict[str, Any] | BackendError | None]":
            away = self._away_error(box)
            try:
                if away is None:
                    return list(box.ask("look", folders=folders[box])["seen"])
            except BackendError as error:
                self._away[box] = time.monotonic(), error
                away = error
            return [away] * len(folders[box])

        answers = zip(folders, ask_all(list(folders), ask), strict=True)
        return {
            (box, folder): status
            for box, statuses in answers
            for folder, status in zip(folders[box], statuses, strict=True)
        }

    def _looked(self, record: LaunchRecord, status: Mapping[str, Any]) -> AttemptView:
        view = view_in(record, status)
        self._mirror.note(record, status)
        if not view.state.active:
            stacks = view.first_cause.stacks if view.first_cause is not None else ()
            self._mirror.pull(record, (*(stack.file for stack in stacks), *RECORD))
        return view

    def _without_first(
        self, record: LaunchRecord, error: BackendError, others: Sequence[tuple[Box, str]]
    ) -> dict[AttemptRef, AttemptView]:
        """An attempt whose first box does not answer: how others say that it ended, or how it was
        seen last."""
        for status in self._seen(others).values():
            if isinstance(status, dict) and not AttemptState(status["state"]).active:
                ended = {**status, "ranks": [_ended(rank, status) for rank in status["ranks"]]}
                self._mirror.end(record, ended)
                return {record.ref: view_in(record, ended)}
        return self._as_seen(record, error)

    def _as_seen(self, record: LaunchRecord, error: BackendError) -> dict[AttemptRef, AttemptView]:
        """An attempt whose box does not answer, as it was seen last from here."""
        seen = self._mirror.noted(record)
        if seen is None:
            return {}
        status, at = seen
        view = view_in(record, status)
        return {
            record.ref: replace(
                view, unavailable=error.message, way_out=error.hint, unknown_since=at
            )
        }

    def _problem(self, record: LaunchRecord) -> BackendError | None:
        """Why the box of an attempt cannot be asked."""
        try:
            box = self._launches.box(record)
        except BackendError as error:
            return error
        return self._away_error(box)

    def _away_error(self, box: Box) -> BackendError | None:
        away = self._away.get(box)
        return away[1] if away is not None and time.monotonic() - away[0] < _AWAY else None

    def _place(self, record: LaunchRecord) -> Path:
        return self._mirror.folder(record)

    def _epoch_ns(self, record: LaunchRecord, folder: Path) -> int | None:  # noqa: ARG002
        return self._mirror.epochs.get((record.token, 0))

    def _later_ns(self, record: LaunchRecord, rank: int) -> int:
        own, first = (
            self._mirror.epochs.get((record.token, node))
            for node in (self._launches.node_of(record, rank), 0)
        )
        return own - first if own is not None and first is not None else 0

    def _goes_on(self, record: LaunchRecord, folder: Path, *, follow: bool) -> bool:  # noqa: ARG002
        if not follow:
            return False  # all of it was brought
        view = self.look([record]).get(record.ref)
        if view is not None and view.unavailable is not None:
            return True  # there may be more when its box is back
        try:
            # After the look: what ended ranks wrote is there. Of several boxes, one may be lost.
            self._mirror.pull(record, log_names())
        except BackendError as error:
            goes_on = view is not None and view.state.active
            if not error.retryable or not (goes_on or len(self._launches.boxes(record)) > 1):
                raise
        return view is not None and view.state.active


def _ended(rank: Mapping[str, Any], status: Mapping[str, Any]) -> dict[str, Any]:
    """A rank, at the end of its attempt. That of another node than the one that says so ended with
    its node."""
    if rank["state"] in ("succeeded", "failed", "stopped", "lost"):
        return dict(rank)
    return {**rank, "state": "succeeded" if status["state"] == "succeeded" else "lost"}


class _CopiedActivity(ActivityReader):
    """`pull` brings what is new, before each look."""

    def __init__(self, copy: ActivityReader, pull: Callable[[], object]) -> None:
        self._copy = copy
        self._pull = pull

    def look(self, view: AttemptView) -> "tuple[datetime | None, Sequence[RankActivity]]":
        self._pull()
        return self._copy.look(view)

    def newest_lines(self, view: AttemptView, rank: int) -> Sequence[str] | None:
        self._pull()
        return self._copy.newest_lines(view, rank)


class _CopiedLog(LogReader):
    """The log of an attempt whose box does not answer: what was brought of it, and the error."""

    def __init__(self, log: LogReader, error: BackendError) -> None:
        self._log = log
        self._error = error

    def read(self) -> "tuple[Iterable[LogLines], bool]":
        return self._lines(), True

    def _lines(self) -> "Iterator[LogLines]":
        yield from self._log.read()[0]
        raise BackendError(
            f"there may be more: {self._error.message}",
            hint=self._error.hint,
            code=self._error.code,
        )
