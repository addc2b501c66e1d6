"""Where launches lie: in staging areas, and on this machine what nodes brought back of them."""

import json
import os
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sgpu_decl.agent.attempt.attempt_files import parse_object
from sgpu_decl.atomic_files import write_cache
from sgpu_decl.backends.attempt_layout import AttemptLayout
from sgpu_decl.backends.launch_request import config_of
from sgpu_decl.backends.remote.launching.remote_reference import RemoteReference, reference_in
from sgpu_decl.backends.remote.staging.remote_layout import MARKER, Uses, render_marker
from sgpu_decl.backends.remote.staging.staging_area import StagingArea
from sgpu_decl.backends.remote.watching.remote_results import RemoteResults
from sgpu_decl.errors import BackendError
from sgpu_decl.model.attempt import AttemptRef
from sgpu_decl.model.jsonable import Json
from sgpu_decl.model.launch import LaunchRecord
from sgpu_decl.places.file_place import PlaceMissing
from sgpu_decl.rendering.spec import RetrySpec

if TYPE_CHECKING:
    from sgpu_decl.config.run import RunConfig

_FORMAT = 1


class RemoteLaunches:
    """Launches of one project and target.

    Args:
        layout: has the folders of attempts on this machine.
        area_of: gives the staging area that a run's `backend` block means.
        file: the name of the file in which this machine remembers what it knows of an attempt.
    """

    def __init__(
        self,
        layout: AttemptLayout,
        area_of: "Callable[[RunConfig], StagingArea]",
        file: str = "launch.json",
    ) -> None:
        self.memory = AttemptMemory(layout, file)
        self._layout = layout
        self._area_of = area_of

    @property
    def home(self) -> Path:
        """The project's `.sgpu` folder."""
        return self._layout.state_dir.parent

    def kept(self, record: LaunchRecord) -> Path:
        """The folder of an attempt on this machine."""
        return self._layout.attempt(record.ref)

    def config(self, record: LaunchRecord) -> "RunConfig":
        """The config of a launch."""
        return config_of(record.ref, record.inputs)

    def retry(self, record: LaunchRecord) -> Mapping[str, Any]:
        """When its ranks start again, as `agent.retry_rule` reads it."""
        return asdict(RetrySpec.of(self.config(record).retry))

    def area(self, record: LaunchRecord) -> StagingArea:
        """The staging area of a launch."""
        return self._area_of(self.config(record))

    def place(self, config: "RunConfig") -> Mapping[str, Json]:  # noqa: ARG002  a default
        """What the reference of a launch says of its platform, and of who launches: for a backend
        whose platform is not named by the config alone."""
        return {}

    def outcome(self, marker: Mapping[str, Any]) -> Mapping[str, Json]:  # noqa: ARG002  a default
        """What the reference of a launch that was started says beside that, by its marker."""
        return {}

    def reference(self, record: LaunchRecord) -> str:
        """The `LaunchRecord.reference` of a launch, as far as it is known now."""
        known = reference_in(record.reference) if record.reference is not None else None
        place = known.facts if known is not None else self.place(self.config(record))
        marker = self.memory.get(record).get("marker")  # it is there once the launch was started
        facts = {**place, **(self.outcome(marker) if marker is not None else {})}
        return RemoteReference(folder=self.folder(record), facts=facts).text

    def shares_area(self, record: LaunchRecord, config: "RunConfig") -> bool:
        """Whether the next launch of a config has the staging area of this one."""
        area = self._area_of(config)
        lies_there = self.folder(record).startswith(f"{area.layout.runs}/")
        return lies_there and self.area(record).key == area.key

    def folder(self, record: LaunchRecord) -> str:
        """The launch folder."""
        return self.area(record).layout.launch(record)

    def results(self, record: LaunchRecord) -> RemoteResults:
        """What nodes bring back to it."""
        sealed = "reports" in (self.memory.get(record).get("marker") or {})
        files, folder = self.area(record).files, self.folder(record)
        return RemoteResults(files, folder, self.kept(record), sealed=sealed)

    def marker(self, record: LaunchRecord) -> Mapping[str, Any] | None:
        """What the marker of a launch says; None where the launch has none. That of an attempt that
        was started does not change, and is remembered."""
        remembered: Mapping[str, Any] | None = self.memory.get(record).get("marker")
        if isinstance(remembered, dict):
            return remembered
        try:
            content = self.area(record).files.get(f"{self.folder(record)}/{MARKER}")
        except PlaceMissing:
            return None
        marker = parse_object(content)
        if marker is None or marker.get("token") != record.token:
            return None
        if is_started(marker):
            self.memory.remember(record, marker=marker)
        return marker

    def was_started(self, record: LaunchRecord) -> bool:
        """Whether this machine remembers that the launch was started."""
        return "marker" in self.memory.get(record)

    def mark(self, record: LaunchRecord, uses: Uses | Mapping[str, Json], **facts: Json) -> None:
        """Write the marker of a launch; see `render_marker`."""
        content = render_marker(uses, token=record.token, **facts)
        self.area(record).files.put(f"{self.folder(record)}/{MARKER}", content)
        marker = json.loads(content)
        if is_started(marker):
            self.memory.remember(record, marker=marker)

    def unstage(self, record: LaunchRecord) -> None:
        """Delete the launch folder of a launch that nothing was started from: it would keep gc
        away. What the storage refuses to delete ends by its age."""
        from sgpu_decl.backends.remote.staging.remote_gc import unstage_launch

        with suppress(BackendError):
            unstage_launch(self.area(record), self.folder(record))


def is_started(marker: Mapping[str, Any]) -> bool:
    """Whether a marker says what an attempt became: beside the facts of `RemoteLaunches.mark` it
    has some of the platform's. (The folder of a job has a list of `files`; `joined` says what
    launches are started as one.)"""
    return bool(marker.keys() - {"token", "uses", "files", "joined", "reports"})


class AttemptMemory:
    """What this machine remembers of attempts, in their folders: a file of facts for each, which do
    not change any more. It is a cache: what it lacks is asked of the platform.
    Calls may come from several threads.

    Args:
        layout: has the folders of attempts.
        file: the name of the file in each.
    """

    def __init__(self, layout: AttemptLayout, file: str) -> None:
        self._layout = layout
        self._file = file
        self._facts: dict[AttemptRef, Mapping[str, Any]] = {}
        self._lock = threading.Lock()

    def get(self, record: LaunchRecord) -> Mapping[str, Any]:
        """The facts of an attempt; none if they are of another launch."""
        with self._lock:
            known = self._facts.get(record.ref) or self._read(record.ref)
            if known.get("token") != record.token:
                return {}
            self._facts[record.ref] = known
            return known

    def remember(self, record: LaunchRecord, **facts: Json) -> None:
        """Add facts. A file that cannot be written (a full disk, a project that is read-only) is no
        failure: this process still knows them, and the next one asks again."""
        with self._lock:
            known = {"v": _FORMAT, "token": record.token}
            for before in (self._facts.get(record.ref, {}), self._read(record.ref)):
                if before.get("token") == record.token:
                    known |= before  # another process may have added some
            self._facts[record.ref] = known | facts
            content = json.dumps(self._facts[record.ref], sort_keys=True).encode()
            write_cache(self._path(record.ref), content)

    def note_answer(self, record: LaunchRecord) -> None:
        """The platform has just said how an attempt stands. The time of the file is that moment."""
        with suppress(OSError):
            os.utime(self._path(record.ref))

    def answered_at(self, record: LaunchRecord) -> datetime | None:
        """When the platform last said how an attempt stands; None where that is not known."""
        try:
            modified = self._path(record.ref).stat().st_mtime
        except OSError:
            return None
        return datetime.fromtimestamp(modified, UTC) if self.get(record) else None

    def forget(self, ref: AttemptRef) -> None:
        """The folder of the attempt was deleted."""
        with self._lock:
            self._facts.pop(ref, None)

    def _path(self, ref: AttemptRef) -> Path:
        return self._layout.attempt(ref) / self._file

    def _read(self, ref: AttemptRef) -> Mapping[str, Any]:
        try:
            facts = parse_object(self._path(ref).read_bytes()) or {}
        except OSError:
            return {}
        return facts if facts.get("v") == _FORMAT else {}
