"""The backend: launch folders in a shared folder, and a keeper for each launch."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import cache, partial
from pathlib import Path
from typing import Any

from sgpu_decl.agent.node.platform import PlatformTable
from sgpu_decl.backends.backend_context import BackendContext
from sgpu_decl.backends.base import Backend, LogReader, Survey
from sgpu_decl.backends.launch_request import LaunchRequest
from sgpu_decl.backends.node_tracker import tracking_findings
from sgpu_decl.backends.remote.launching.launch_folder import NodeProgram, NodeStart
from sgpu_decl.backends.remote.launching.remote_launcher import RemoteLauncher
from sgpu_decl.backends.remote.launching.remote_launches import RemoteLaunches
from sgpu_decl.backends.remote.staging.remote_gc import PendingGc
from sgpu_decl.backends.remote.staging.remote_layout import RemoteLayout
from sgpu_decl.backends.remote.staging.remote_storage import RemoteStorage
from sgpu_decl.backends.remote.staging.staging_area import StagingArea
from sgpu_decl.backends.remote.watching.node_logs import NodeLogReader, SharedLogs
from sgpu_decl.backends.remote.watching.remote_attempts import RemoteAttempts
from sgpu_decl.backends.remote.watching.remote_status import RemoteStatus
from sgpu_decl.backends.secret_resolution import resolve_secrets
from sgpu_decl.config.run import RunConfig
from sgpu_decl.diagnostics.diagnostic import Diagnostic
from sgpu_decl.diagnostics.place import Place
from sgpu_decl.errors import BackendError
from sgpu_decl.model.attempt_view import view_in
from sgpu_decl.model.launch import LaunchRecord
from sgpu_decl.places.folder import FolderPlace
from tests.contracts.folder_backend.keeper import alive
from tests.contracts.folder_backend.options import FolderOptions


def open_folder(context: BackendContext) -> Backend:
    @cache
    def area(root: str) -> StagingArea:
        return StagingArea(RemoteLayout(root), FolderPlace(Path(root)), key={"root": root})

    launches = RemoteLaunches(context.layout, lambda config: area(_options(config).root))
    attempts = FolderAttempts(launches)
    pending = PendingGc(context.state_dir / "folder-gc.json")
    return Backend(
        survey=FolderSurvey(),
        launcher=FolderLauncher(context, launches, attempts, FolderNodes()),
        attempts=attempts,
        storage=RemoteStorage(context.layout, attempts, pending, lambda key: area(key["root"])),
        close=attempts.close,
    )


def _options(config: RunConfig) -> FolderOptions:
    assert isinstance(config.backend, FolderOptions)
    return config.backend


class FolderSurvey(Survey):
    """The nodes take every run."""

    def check(
        self,
        config: RunConfig,
        places: Mapping[str, Place],
        folder: Path,
        *,
        called: bool,
    ) -> Sequence[Diagnostic]:
        return tuple(tracking_findings(config, places, os.environ))


class FolderNodes(NodeProgram):
    def nodes(self, request: LaunchRequest) -> int:
        return _options(request.config).nodes

    def files(self, request: LaunchRequest, start: NodeStart) -> Mapping[str, bytes]:
        program = {
            "nodes": self.nodes(request),
            "agent": f"{start.objects}/agent/{start.agent}.zip",
            "arguments": start.arguments("RUN", PlatformTable()),
        }
        return {"node.json": json.dumps(program).encode()}


class FolderLauncher(RemoteLauncher):
    def check(self, request: LaunchRequest) -> None:
        super().check(request)
        resolve_secrets(request.config.secrets, os.environ, Path())

    def start(self, request: LaunchRequest, folder: str) -> Mapping[str, Any]:
        secrets = resolve_secrets(request.config.secrets, os.environ, Path())
        with subprocess.Popen(
            [sys.executable, "-m", "tests.contracts.folder_backend.keeper", folder],
            env={**os.environ, **secrets, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            start_new_session=True,
        ) as keeper:
            assert keeper.stdout is not None
            kept = keeper.stdout.readline()
            keeper.returncode = 0  # it goes on, and is not waited for
        if not kept:
            raise BackendError(f"the nodes of `{request.ref}` cannot be started")
        return {}

    def cancel(self, record: LaunchRecord) -> None:
        if self.staged(record):
            logs = Path(self._launches.folder(record), "logs")
            logs.mkdir(exist_ok=True)
            (logs / "cancel").touch()


class FolderAttempts(RemoteAttempts):
    def status(self, record: LaunchRecord, marker: Mapping[str, Any]) -> RemoteStatus:
        folder = Path(self._launches.folder(record))
        lives = alive(folder)  # before the rest: what the keeper wrote last counts
        started, ended = _moment(folder / "logs/started"), _moment(folder / "logs/ended")
        seen: dict[str, Any] = {"state": "running" if started else "queued"}
        if not (folder / "logs/keeper.lock").exists():
            seen = {"state": "staging"}
        brought, outcome = None, None
        if not lives and (folder / "logs/keeper.lock").exists():
            results = self._launches.results(record)
            brought = results.newest()
            outcome = results.outcome(brought or 0)
            seen = outcome or {"state": "lost"}
            if ended and (folder / "logs/cancel").exists() and seen["state"] != "succeeded":
                seen = {**seen, "state": "cancelled"}
        view = replace(
            view_in(record, seen),
            started_at=started,
            ended_at=None if lives else ended,
            links={"folder": str(folder)},
        )
        tracked = seen.get("mlflow")
        return RemoteStatus(view=view, brought=brought, final=outcome is not None, tracked=tracked)

    def log(self, record: LaunchRecord, ranks: Sequence[int] | None, *, follow: bool) -> LogReader:
        folder = Path(self._launches.folder(record))
        return NodeLogReader(
            record.ref, SharedLogs(f"{folder}/logs"), partial(alive, folder),
            partial(self.require_folder, record), ranks, follow=follow,
        )  # fmt: skip


def _moment(file: Path) -> datetime | None:
    try:
        return datetime.fromtimestamp(float(file.read_text()), UTC)
    except FileNotFoundError:
        return None
