"""A backend of another package whose platform is a folder: attempts run on paper, and end when a
test says so. `log` in the folder has a line for each start, request to stop and end."""

import os
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from pydantic import Field

from sgpu_decl.backends.backend_context import BackendContext
from sgpu_decl.backends.base import Backend, LogReader, NoLog, Survey
from sgpu_decl.backends.launch_request import LaunchRequest
from sgpu_decl.backends.remote.launching.launch_folder import NodeProgram, NodeStart
from sgpu_decl.backends.remote.launching.remote_launcher import RemoteLauncher
from sgpu_decl.backends.remote.launching.remote_launches import RemoteLaunches
from sgpu_decl.backends.remote.staging.remote_gc import PendingGc
from sgpu_decl.backends.remote.staging.remote_layout import RemoteLayout
from sgpu_decl.backends.remote.staging.remote_storage import RemoteStorage
from sgpu_decl.backends.remote.staging.staging_area import StagingArea
from sgpu_decl.backends.remote.watching.remote_attempts import RemoteAttempts
from sgpu_decl.backends.remote.watching.remote_status import RemoteStatus
from sgpu_decl.config.backend import BackendOptions
from sgpu_decl.config.run import RunConfig
from sgpu_decl.errors import BackendError
from sgpu_decl.model.attempt_view import view_in
from sgpu_decl.model.backend_kinds import BackendKind, Capabilities
from sgpu_decl.model.launch import LaunchRecord
from sgpu_decl.places.folder import FolderPlace

ENTRY_POINTS = "[sgpu.backends]\npaper = tests.applying.paper_platform:KIND\n"


class PaperOptions(BackendOptions):
    """Attempts run on paper."""

    root: str = Field(description="The folder of the platform.")


class PaperPlatform:
    def __init__(self, root: Path) -> None:
        self.root = root
        root.mkdir(exist_ok=True)

    @property
    def log(self) -> list[str]:
        file = self.root / "log"
        return file.read_text().splitlines() if file.exists() else []

    def note(self, what: str, ref: object) -> bool:
        """Write a line once; returns whether it is new."""
        try:
            (self.root / f"{what} {ref}").touch(exist_ok=False)
        except FileExistsError:
            return False
        with open(self.root / "log", "a") as file:
            file.write(f"{what} {ref}\n")
        return True

    def noted(self, what: str, ref: object) -> bool:
        return (self.root / f"{what} {ref}").exists()

    def refuse(self, words: str) -> None:
        """Start nothing more."""
        (self.root / "refusal").write_text(words)

    @property
    def refusal(self) -> str | None:
        file = self.root / "refusal"
        return file.read_text() if file.exists() else None


class PaperSurvey(Survey):
    """The platform takes every run."""


class PaperNodes(NodeProgram):
    def nodes(self, request: LaunchRequest) -> int:
        return 1

    def files(self, request: LaunchRequest, start: NodeStart) -> Mapping[str, bytes]:
        return {}


class PaperLauncher(RemoteLauncher):
    def start(self, request: LaunchRequest, folder: str) -> Mapping[str, Any]:
        platform = _platform(request.config)
        if platform.refusal is not None:
            raise BackendError(platform.refusal)
        platform.note("start", request.ref)
        return {"job": request.record.token}

    def cancel(self, record: LaunchRecord) -> None:
        _platform(self._launches.config(record)).note("stop", record.ref)


class PaperAttempts(RemoteAttempts):
    def status(self, record: LaunchRecord, marker: Mapping[str, Any]) -> RemoteStatus:
        platform = _platform(self._launches.config(record))
        state = "running" if "job" in marker else "staging"
        if platform.noted("end", record.ref):
            state = "cancelled" if platform.noted("stop", record.ref) else "succeeded"
        return RemoteStatus(view=view_in(record, {"state": state}))

    def log(self, record: LaunchRecord, ranks: Sequence[int] | None, *, follow: bool) -> LogReader:
        return NoLog()


def _platform(config: RunConfig) -> PaperPlatform:
    assert isinstance(config.backend, PaperOptions)
    return PaperPlatform(Path(config.backend.root))


def _open(context: BackendContext) -> Backend:
    @cache
    def area(root: str) -> StagingArea:
        return StagingArea(RemoteLayout(root), FolderPlace(Path(root)), key={"root": root})

    def area_of(config: RunConfig) -> StagingArea:
        return area(os.fspath(_platform(config).root / "staging"))

    launches = RemoteLaunches(context.layout, area_of)
    attempts = PaperAttempts(launches)
    pending = PendingGc(context.state_dir / "paper-gc.json")
    return Backend(
        survey=PaperSurvey(),
        launcher=PaperLauncher(context, launches, attempts, PaperNodes()),
        attempts=attempts,
        storage=RemoteStorage(context.layout, attempts, pending, lambda key: area(key["root"])),
        close=attempts.close,
    )


KIND = BackendKind(
    name="paper",
    options=lambda: PaperOptions,
    capabilities=Capabilities(fields=frozenset({"after"}), remote=True, queues=False),
    open=_open,
)
