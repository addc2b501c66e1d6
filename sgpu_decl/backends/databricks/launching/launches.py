"""Which launch an attempt is: remembered here, or found again in the workspace."""

import json
from dataclasses import replace
from pathlib import Path

from sgpu_decl.backends.attempt_layout import AttemptLayout
from sgpu_decl.backends.base import Launching
from sgpu_decl.backends.databricks.launching.handle import Handle, read_handle, write_handle
from sgpu_decl.backends.databricks.workspace import Workspace, Workspaces
from sgpu_decl.backends.launch_config import config_of
from sgpu_decl.backends.remote.files import RemoteMissing
from sgpu_decl.backends.remote.remote_layout import MARKER, render_marker
from sgpu_decl.config.run import RunConfig
from sgpu_decl.model.attempt import AttemptRef
from sgpu_decl.model.launch import LaunchRecord

__all__ = ["Launches"]


class Launches:
    """Handles of attempts: read, written, and made again from what the state records and from the
    marker in the launch folder."""

    def __init__(self, layout: AttemptLayout, workspaces: Workspaces) -> None:
        self._layout = layout
        self._workspaces = workspaces
        self._seen: dict[AttemptRef, Handle] = {}

    def folder(self, ref: AttemptRef) -> Path:
        """The attempt's folder on this machine."""
        return self._layout.attempt(ref)

    def of(self, record: LaunchRecord) -> Handle | None:
        """What is known of an attempt's launch; `None` where none was begun."""
        handle = self.here(record.ref) or self._begun(record)
        if handle is not None and handle.run_id is None and handle.staged:
            handle = self._marked(record.ref, handle)
        if handle is not None:
            self._seen[record.ref] = handle
        return handle

    def here(self, ref: AttemptRef) -> Handle | None:
        """What this machine itself remembers of an attempt's launch."""
        return self._seen.get(ref) or read_handle(self.folder(ref))

    def begin(self, launching: Launching) -> Handle:
        """Remember that a launch is being staged."""
        handle = self._handle(launching.record, launching.config)
        self.keep(launching.ref, handle)
        return handle

    def keep(self, ref: AttemptRef, handle: Handle) -> None:
        """Remember what is known now."""
        write_handle(self.folder(ref), handle)
        self._seen[ref] = handle

    def submitted(self, ref: AttemptRef, handle: Handle, run_id: int) -> Handle:
        """Note in the workspace, and here, which run a launch became."""
        workspace = self.workspace(handle)
        moment = workspace.connection.now()
        marker = render_marker(handle.uses, run_id=run_id, token=handle.token, submitted=moment)
        workspace.files.put(f"{handle.folder}/{MARKER}", marker)
        known = handle.with_run(run_id, moment)
        self.keep(ref, known)
        return known

    def forget(self, ref: AttemptRef) -> None:
        """Nothing of the attempt is here any more."""
        self._seen.pop(ref, None)

    def workspace(self, handle: Handle) -> Workspace:
        """The workspace that a launch is in."""
        return self._workspaces.at(handle.account, handle.staging)

    def _begun(self, record: LaunchRecord) -> Handle | None:
        """From the record alone: this machine forgot, or never launched it."""
        found = self._handle(record, config_of(record.ref, record.inputs))
        found = self._marked(record.ref, replace(found, staged=True))
        return found if found.run_id is not None else None

    def _handle(self, record: LaunchRecord, config: RunConfig) -> Handle:
        workspace = self._workspaces.of(config.backend)
        return Handle(
            token=record.token,
            lineage=record.lineage,
            account=workspace.account,
            staging=workspace.staging,
            host=workspace.connection.host,
            folder=workspace.layout.launch(record),
        )

    def _marked(self, ref: AttemptRef, handle: Handle) -> Handle:
        """With the run that the marker names, if there is one."""
        try:
            raw = json.loads(self.workspace(handle).files.get(f"{handle.folder}/{MARKER}"))
            found = replace(handle, run_id=int(raw["run_id"]), submitted=float(raw["submitted"]))
        except (RemoteMissing, ValueError, KeyError, TypeError):
            return handle
        self.keep(ref, found)
        return found
