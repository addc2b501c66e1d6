"""The backend: launch folders in a shared folder, and a keeper for each launch."""

import json
import os
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sgpu_decl.agent.node.platform import PlatformTable
from sgpu_decl.backends.attempt_layout import AttemptLayout
from sgpu_decl.backends.backend_context import BackendContext
from sgpu_decl.backends.base import Backend, Launcher, Launching, LogReader, Survey
from sgpu_decl.backends.launch_config import config_of
from sgpu_decl.backends.remote.attempts import BroughtBack, PlacedLaunch, RemoteAttempts
from sgpu_decl.backends.remote.files import RemoteMissing
from sgpu_decl.backends.remote.folder_files import FolderFiles
from sgpu_decl.backends.remote.launch_folder import NodeStart
from sgpu_decl.backends.remote.log_lines import NodeLine, line_of
from sgpu_decl.backends.remote.pending_gc import PendingGc
from sgpu_decl.backends.remote.remote_layout import MARKER, RemoteLayout
from sgpu_decl.backends.remote.remote_results import RemoteResults
from sgpu_decl.backends.remote.staging_area import StagingArea
from sgpu_decl.backends.remote.storage import RemoteStorage
from sgpu_decl.backends.remote.uploader import Uploader
from sgpu_decl.backends.required_code import require_code
from sgpu_decl.backends.resolved_secrets import resolve_secrets
from sgpu_decl.diagnostics.diagnostic import Diagnostic
from sgpu_decl.diagnostics.place import Place
from sgpu_decl.errors import BackendError
from sgpu_decl.model.attempt import AttemptRef
from sgpu_decl.model.attempt_view import AttemptView, view_in
from sgpu_decl.model.launch import LaunchRecord
from sgpu_decl.model.rank_output import LogLines
from sgpu_decl.model.step_progress import Progress
from tests.contracts.folder_backend.keeper import alive
from tests.contracts.folder_backend.options import FolderOptions

if TYPE_CHECKING:
    from sgpu_decl.config.env import Env
    from sgpu_decl.config.run import RunConfig


def open_folder(context: BackendContext) -> Backend:
    launches = Launches(context)
    attempts = FolderAttempts(launches)
    pending = PendingGc(context.state_dir / "folder-gc.json")
    return Backend(
        survey=FolderSurvey(),
        launcher=FolderLauncher(context, launches),
        attempts=attempts,
        storage=RemoteStorage(
            launches.here, attempts, pending, lambda key: launches.area(key["root"])
        ),
    )


def _options(config: "RunConfig") -> FolderOptions:
    assert isinstance(config.backend, FolderOptions)
    return config.backend


class FolderSurvey(Survey):
    def interpreter(self, env: "Env", folder: Path) -> None:
        return None

    def rules(
        self, config: "RunConfig", places: Mapping[str, Place], folder: Path
    ) -> Sequence[Diagnostic]:
        return ()

    def check(
        self, config: "RunConfig", places: Mapping[str, Place], folder: Path, *, called: bool
    ) -> Sequence[Diagnostic]:
        return ()


class FolderNodes:
    """See `NodeProgram`: what the keeper starts."""

    def nodes(self, config: "RunConfig") -> int:
        return _options(config).nodes

    def files(self, launching: Launching, start: NodeStart) -> Mapping[str, bytes]:
        program = {
            "nodes": self.nodes(launching.config),
            "agent": f"{start.objects}/agent/{start.agent}.zip",
            "arguments": start.arguments("RUN", PlatformTable()),
        }
        return {"node.json": json.dumps(program).encode()}

    def lease_file(self, launching: Launching) -> None:
        return None


class Launches:
    """Where launches lie: in the shared folder, and what is brought of them here."""

    def __init__(self, context: BackendContext) -> None:
        self.here = AttemptLayout(context.state_dir)
        self.area = cache(
            lambda root: StagingArea(
                RemoteLayout(root), FolderFiles(Path(root)), key={"root": root}
            )
        )

    def area_of(self, record: LaunchRecord) -> StagingArea:
        return self.area(_options(config_of(record.ref, record.inputs)).root)

    def folder(self, record: LaunchRecord) -> Path:
        """A launch folder. That of a run which was moved has its old name."""
        usual = Path(self.area_of(record).layout.launch(record))
        moved = usual.parent.parent.glob(f"*/{usual.name}")
        return usual if usual.exists() else next(moved, usual)

    def results(self, record: LaunchRecord) -> RemoteResults:
        files = self.area_of(record).files
        return RemoteResults(files, str(self.folder(record)), self.here.attempt(record.ref))


class FolderLauncher(Launcher):
    def __init__(self, context: BackendContext, launches: Launches) -> None:
        self._store = context.store
        self._launches = launches
        self._uploader = Uploader(
            context, lambda item: launches.area_of(item.record), FolderNodes()
        )

    def check(self, launching: Launching) -> None:
        require_code(self._store(), launching)
        resolve_secrets(launching.config.env.secrets, os.environ)

    def prepare(self, launchings: Sequence[Launching], progress: Progress) -> Sequence[Diagnostic]:
        self._uploader.share(
            [launching for launching in launchings if not self.staged(launching.record)], progress
        )
        return ()

    def stage(self, launching: Launching) -> None:
        if self.staged(launching.record):
            return
        uses = self._uploader.fill(launching)
        marker = {"token": launching.record.token, "uses": asdict(uses)}
        self._put(launching.record, MARKER, json.dumps(marker).encode())
        self._uploader.release(launching.ref)

    def staged(self, record: LaunchRecord) -> bool:
        files = self._launches.area_of(record).files
        try:
            marker = json.loads(files.get(f"{self._launches.folder(record)}/{MARKER}"))
        except RemoteMissing:
            return False
        return bool(marker["token"] == record.token)

    def launch(self, launching: Launching) -> None:
        secrets = resolve_secrets(launching.config.env.secrets, os.environ)
        folders = [self._launches.folder(item) for item in (launching.record, *launching.earlier)]
        with subprocess.Popen(
            [sys.executable, "-m", "tests.contracts.folder_backend.keeper", *folders],
            env={**os.environ, **secrets, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            start_new_session=True,
        ) as keeper:
            assert keeper.stdout is not None
            kept = keeper.stdout.readline()
            keeper.returncode = 0  # it goes on, and is not waited for
        if not kept:
            raise BackendError(f"the nodes of `{launching.ref}` cannot be started")

    def cancel(self, record: LaunchRecord) -> None:
        if self.staged(record):
            self._put(record, "cancel", b"1")

    def _put(self, record: LaunchRecord, name: str, content: bytes) -> None:
        files = self._launches.area_of(record).files
        files.put(f"{self._launches.folder(record)}/{name}", content)


class FolderLog(LogReader):
    def __init__(
        self, ref: AttemptRef, folder: Path, ranks: Sequence[int] | None, *, follow: bool
    ) -> None:
        self._ref, self._folder, self._ranks, self._follow = ref, folder, ranks, follow
        self._read: dict[Path, int] = {}

    def read(self) -> tuple[Iterable[LogLines], bool]:
        lives = alive(self._folder)
        return self._lines(lives=lives), not (lives and self._follow)

    def _lines(self, *, lives: bool) -> Iterator[LogLines]:
        for log in sorted(self._folder.glob("logs/*.log")):
            begin = self._read.get(log, 0)
            *whole, rest = log.read_bytes()[begin:].split(b"\n")
            self._read[log] = begin + sum(len(item) + 1 for item in whole)
            for text in whole if lives or not rest else (*whole, rest):
                line = line_of(self._ref, NodeLine(0, int(log.stem), text.decode(errors="replace")))
                if self._ranks is None or line.rank in self._ranks:
                    yield line


class FolderAttempts(RemoteAttempts):
    def __init__(self, launches: Launches) -> None:
        self._launches = launches

    def look(self, records: Sequence[LaunchRecord]) -> Mapping[AttemptRef, AttemptView]:
        return {record.ref: view for record in records if (view := self._view(record)) is not None}

    def placed(self, record: LaunchRecord) -> PlacedLaunch | None:
        folder, area = self._launches.folder(record), self._launches.area_of(record)
        return PlacedLaunch(area, str(folder)) if folder.exists() else None

    def brought_back(self, record: LaunchRecord) -> BroughtBack | None:
        view, results = self._view(record), self._launches.results(record)
        newest = results.newest()
        if view is None or newest is None:
            return None
        return BroughtBack(results, newest, view)

    def _view(self, record: LaunchRecord) -> AttemptView | None:
        folder = self._launches.folder(record)
        if not (folder / MARKER).exists():
            return None
        lives = alive(folder)  # before the rest: what the keeper wrote last counts
        started, ended = _moment(folder / "started"), _moment(folder / "ended")
        seen: dict[str, Any] = {"state": "running" if started else "queued"}
        if not (folder / "keeper.lock").exists():
            seen = {"state": "staging"}
        elif not lives:
            results = self._launches.results(record)
            seen = results.outcome(results.newest() or 0) or {"state": "lost"}
            if ended and (folder / "cancel").exists() and seen["state"] != "succeeded":
                seen = {**seen, "state": "cancelled"}
        return replace(
            view_in(record, seen),
            started_at=started,
            ended_at=None if lives else ended,
            links={"folder": str(folder)},
        )

    def logs(
        self,
        record: LaunchRecord,
        *,
        ranks: Sequence[int] | None,
        follow: bool,
        restart: int | None = None,
    ) -> LogReader:
        if restart is not None:
            raise BackendError("lines of nodes do not say their restart", code="no_restarts")
        return FolderLog(record.ref, self._launches.folder(record), ranks, follow=follow)


def _moment(file: Path) -> datetime | None:
    try:
        return datetime.fromtimestamp(float(file.read_text()), UTC)
    except FileNotFoundError:
        return None
