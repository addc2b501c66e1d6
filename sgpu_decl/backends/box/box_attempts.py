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
)
from sgpu_decl.backends.box.boxes import Box
from sgpu_decl.backends.host.folder_attempts import FolderAttempts, links_of, with_files
from sgpu_decl.errors import BackendError
from sgpu_decl.model.attempt import AttemptRef, AttemptState
from sgpu_decl.model.attempt_view import AttemptView, notices_in, view_in
from sgpu_decl.model.jsonable import Json
from sgpu_decl.model.launch import LaunchRecord

if TYPE_CHECKING:
    from datetime import datetime

    from sgpu_decl.config.run import RunConfig
    from sgpu_decl.model.rank_activity import RankActivity
    from sgpu_decl.model.rank_output import LogLines, Output
    from sgpu_decl.model.step_progress import Progress

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
        boxes: dict[Box, list[LaunchRecord]] = {}
        for record in records:
            if self._mirror.has_ended(record):
                views[record.ref] = view_in(record, read_attempt(self._layout.found(record)))
            elif (error := self._problem(record)) is None:
                boxes.setdefault(self._launches.box(record), []).append(record)
            else:
                views |= self._as_seen([record], error)
        for box, group in boxes.items():
            views |= self._looked(box, group)
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
        found: list[dict[str, Any]] = self._launches.ask(record, "stacks", ranks=ranks)["stacks"]
        return found

    def results(self, record: LaunchRecord) -> list[dict[str, Json]]:
        self._mirror.pull(record, RESULTS)
        return super().results(record)

    def output(self, record: LaunchRecord, progress: "Progress") -> "Output":
        self._mirror.pull(record, OUTPUT, progress)
        return super().output(record, progress)

    def node_files(self, record: LaunchRecord, name: str) -> Mapping[int, Path]:
        self._mirror.pull(record, (name,))
        return super().node_files(record, name)

    def left_output(self, record: LaunchRecord, config: "RunConfig") -> bool:  # noqa: ARG002
        return self.output_place(record) is not None

    def output_place(self, record: LaunchRecord) -> str | None:
        if not self._launches.ask(record, "facts_of")["output"]:
            return None
        box, run = self._launches.box(record), self._launches.folder(record).rpartition("/")[0]
        return f"{box.host}:{box.storage}/{run}"

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
            asked = [self._launches.folder(record)]
            found = self._launches.ask(record, "look", folders=asked, remains=True)["left"]
            left = tuple(pid for pids in found.values() for pid in pids)
        box = self._launches.box(record)
        there = f"{box.storage}/{self._launches.folder(record)}"
        return replace(
            view,
            first_cause=with_files(view.first_cause, folder),
            links={**links_of(folder), "host": box.host, "folder": there,
                   "output": f"{there}/output"},
            notices=notices_in(read_notices(str(folder))),
            processes_left=left,
        )  # fmt: skip

    def _looked(self, box: Box, records: Sequence[LaunchRecord]) -> dict[AttemptRef, AttemptView]:
        """What a box says of attempts; if it does not answer, what it said last."""
        folders = [self._launches.folder(record) for record in records]
        try:
            seen = box.ask("look", folders=folders)["seen"]
        except BackendError as error:
            self._away[box] = time.monotonic(), error
            return self._as_seen(records, error)
        views = {}
        for record, status in zip(records, seen, strict=True):
            if status is not None:
                view = views[record.ref] = view_in(record, status)
                self._mirror.note(record, status)
                if not view.state.active:
                    stacks = view.first_cause.stacks if view.first_cause is not None else ()
                    self._mirror.pull(record, (*(stack.file for stack in stacks), *RECORD))
        return views

    def _as_seen(
        self, records: Sequence[LaunchRecord], error: BackendError
    ) -> dict[AttemptRef, AttemptView]:
        """Attempts of a box that does not answer, as they were seen last from here."""
        views = {}
        for record in records:
            seen = self._mirror.noted(record)
            if seen is not None:
                status, at = seen
                views[record.ref] = replace(
                    view_in(record, status),
                    unavailable=error.message,
                    way_out=error.hint,
                    unknown_since=at,
                )
        return views

    def _problem(self, record: LaunchRecord) -> BackendError | None:
        """Why the box of an attempt cannot be asked."""
        try:
            box = self._launches.box(record)
        except BackendError as error:
            return error
        away = self._away.get(box)
        return away[1] if away is not None and time.monotonic() - away[0] < _AWAY else None

    def _place(self, record: LaunchRecord) -> Path:
        return self._mirror.folder(record)

    def _epoch_ns(self, record: LaunchRecord, folder: Path) -> int | None:  # noqa: ARG002
        return self._mirror.epochs.get(record.token)

    def _goes_on(self, record: LaunchRecord, folder: Path, *, follow: bool) -> bool:  # noqa: ARG002
        if not follow:
            return False  # all of it was brought
        view = self.look([record]).get(record.ref)
        self._mirror.pull(record, log_names())  # after the look: what ended ranks wrote is there
        return view is not None and view.state.active


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
