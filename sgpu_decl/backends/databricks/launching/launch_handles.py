"""The handle of a launch: which folder and which run of a workspace it is. It is kept in the
attempt's folder on this machine as a cache; the truth is the marker in the launch folder."""

import json
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path

from sgpu_decl.atomic_files import write_atomic
from sgpu_decl.backends.attempt_layout import AttemptLayout
from sgpu_decl.backends.base import Launching
from sgpu_decl.backends.databricks.api.account import Account
from sgpu_decl.backends.databricks.workspace import Workspace, Workspaces
from sgpu_decl.backends.launch_config import config_of
from sgpu_decl.backends.remote.files import RemoteMissing
from sgpu_decl.backends.remote.remote_layout import MARKER, render_marker
from sgpu_decl.config.run import RunConfig
from sgpu_decl.model.attempt import AttemptRef
from sgpu_decl.model.jsonable import Json
from sgpu_decl.model.launch import LaunchRecord

_FILE = "databricks.json"
_FORMAT = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchHandle:
    """What is known of one launch.

    `staged` says that its launch folder is complete; `body` is the request that submits it, `uses`
    the shared objects that it needs (`remote_layout.Uses`). `submitted` is in seconds of the epoch,
    by the workspace's clock. `seen` says that the workspace has shown the run since. `ended` is the
    `status` object of an attempt that will not change any more. `mlflow` is what its MLflow runs
    are to say (`mlflow_metadata`); `mlflow_problems` maps the id of each MLflow run that was
    written to the reason why it does not say so, or to nothing.
    """

    token: str
    account: Account
    staging: str | None
    host: str
    folder: str
    staged: bool = False
    body: dict[str, Json] = field(default_factory=dict)
    uses: dict[str, Json] = field(default_factory=dict)
    run_id: int | None = None
    submitted: float = 0.0
    seen: bool = False
    ended: dict[str, Json] = field(default_factory=dict)
    mlflow: dict[str, Json] = field(default_factory=dict)
    mlflow_problems: dict[str, str] = field(default_factory=dict)


class LaunchHandles:
    """The handles of attempts: read, written, and made again from what the state records and from
    the marker in the launch folder."""

    def __init__(self, layout: AttemptLayout, workspaces: Workspaces) -> None:
        self._layout = layout
        self._workspaces = workspaces
        self._handles: dict[AttemptRef, LaunchHandle] = {}

    def folder(self, ref: AttemptRef) -> Path:
        """The attempt's folder on this machine."""
        return self._layout.attempt(ref)

    def of(self, record: LaunchRecord) -> LaunchHandle | None:
        """The handle of an attempt; `None` where no launch was begun."""
        handle = self.here(record.ref) or self._rebuilt(record)
        if handle is not None and handle.run_id is None and handle.staged:
            handle = self._with_marker(record.ref, handle)
        if handle is not None:
            self._handles[record.ref] = handle
        return handle

    def here(self, ref: AttemptRef) -> LaunchHandle | None:
        """The handle that this machine itself has of an attempt."""
        return self._handles.get(ref) or _read(self.folder(ref) / _FILE)

    def staged(self, record: LaunchRecord) -> LaunchHandle | None:
        """The handle that this machine itself has of a launch that is staged."""
        handle = self.here(record.ref)
        is_staged = handle is not None and handle.token == record.token and handle.staged
        return handle if is_staged else None

    def begin(self, launching: Launching) -> LaunchHandle:
        """Make the handle of a launch that is being staged."""
        handle = self._new(launching.record, launching.config)
        self.write(launching.ref, handle)
        return handle

    def write(self, ref: AttemptRef, handle: LaunchHandle) -> None:
        """Keep a handle; it is on the disk when this returns."""
        folder = self.folder(ref)
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        text = json.dumps({"v": _FORMAT, **asdict(handle)}, sort_keys=True)
        write_atomic(folder / _FILE, text.encode())
        self._handles[ref] = handle

    def submitted(self, ref: AttemptRef, handle: LaunchHandle, run_id: int) -> None:
        """Note in the workspace, and here, which run a launch became."""
        workspace = self.workspace(handle)
        moment = workspace.connection.now()
        marker = render_marker(handle.uses, run_id=run_id, token=handle.token, submitted=moment)
        workspace.files.put(f"{handle.folder}/{MARKER}", marker)
        self.write(ref, replace(handle, run_id=run_id, submitted=moment))

    def cancel(self, record: LaunchRecord) -> None:
        """Ask the platform to end the run of a launch; harmless when it has ended.

        Raises:
            BackendError: the workspace does not answer, or does not allow it.
        """
        handle = self.of(record)
        if handle is None or handle.run_id is None or handle.ended:
            return
        self.workspace(handle).connection.tell_unless_gone(
            f"cancelling `{record.ref}`",
            "/api/2.2/jobs/runs/cancel",
            {"run_id": handle.run_id},
            look="/api/2.2/jobs/runs/get",
        )

    def forget(self, ref: AttemptRef) -> None:
        """Nothing of the attempt is here any more."""
        self._handles.pop(ref, None)

    def workspace(self, handle: LaunchHandle) -> Workspace:
        """The workspace that a launch is in."""
        return self._workspaces.at(handle.account, handle.staging)

    def _rebuilt(self, record: LaunchRecord) -> LaunchHandle | None:
        """From the record alone: this machine has no handle, or never launched it."""
        handle = self._new(record, config_of(record.ref, record.inputs))
        handle = self._with_marker(record.ref, replace(handle, staged=True))
        return handle if handle.run_id is not None else None

    def _new(self, record: LaunchRecord, config: RunConfig) -> LaunchHandle:
        workspace = self._workspaces.of(config.backend)
        return LaunchHandle(
            token=record.token,
            account=workspace.account,
            staging=workspace.staging,
            host=workspace.connection.host,
            folder=workspace.layout.launch(record),
        )

    def _with_marker(self, ref: AttemptRef, handle: LaunchHandle) -> LaunchHandle:
        """With the run that the marker names, if there is one."""
        try:
            marker = json.loads(self.workspace(handle).files.get(f"{handle.folder}/{MARKER}"))
            run_id, submitted = int(marker["run_id"]), float(marker["submitted"])
        except (RemoteMissing, ValueError, KeyError, TypeError):
            return handle
        handle = replace(handle, run_id=run_id, submitted=submitted)
        self.write(ref, handle)
        return handle


def _read(file: Path) -> LaunchHandle | None:
    """The handle in a file; `None` where there is none that can be read."""
    try:
        raw = json.loads(file.read_bytes())
        if raw["v"] != _FORMAT:
            return None
        values = {item.name: raw[item.name] for item in fields(LaunchHandle) if item.name in raw}
        return LaunchHandle(**values | {"account": Account(**raw["account"])})
    except (OSError, ValueError, KeyError, TypeError):
        return None
