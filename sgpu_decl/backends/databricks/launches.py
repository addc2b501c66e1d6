"""Which launch an attempt is: remembered here, or found again in the workspace."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from sgpu_decl.backends.base import Launching
from sgpu_decl.backends.configured import config_of
from sgpu_decl.backends.databricks.account import Account
from sgpu_decl.backends.databricks.complaints import Unknown
from sgpu_decl.backends.databricks.handle import Handle, read_handle, write_handle
from sgpu_decl.backends.databricks.places import MARKER
from sgpu_decl.backends.databricks.workspace import Workspace, Workspaces
from sgpu_decl.backends.layout import Layout
from sgpu_decl.config.run import RunConfig
from sgpu_decl.model.attempt import AttemptRef
from sgpu_decl.model.jsonable import Json, canonical
from sgpu_decl.model.state import Attempt

__all__ = ["Launches"]

Recorded = Callable[[AttemptRef], tuple[str, Attempt | None]]


class Launches:
    """Handles of attempts: read, written, and made again from what the state records and from the
    marker in the launch folder."""

    def __init__(self, layout: Layout, workspaces: Workspaces, recorded: Recorded) -> None:
        self._layout = layout
        self._workspaces = workspaces
        self._recorded = recorded
        self._seen: dict[AttemptRef, Handle] = {}

    def folder(self, ref: AttemptRef) -> Path:
        """The attempt's folder on this machine."""
        return self._layout.attempt(ref)

    def of(self, ref: AttemptRef) -> Handle | None:
        """What is known of an attempt's launch; `None` where none was begun."""
        handle = self.here(ref) or self._begun(ref)
        if handle is not None and handle.run_id is None and handle.staged:
            handle = self._marked(ref, handle)
        if handle is not None:
            self._seen[ref] = handle
        return handle

    def here(self, ref: AttemptRef) -> Handle | None:
        """What this machine itself remembers of an attempt's launch."""
        return self._seen.get(ref) or read_handle(self.folder(ref))

    def begin(self, launching: Launching, config: RunConfig) -> Handle:
        """Remember that a launch is being staged."""
        workspace = self._workspaces.of(config.backend)
        handle = Handle(
            token=launching.token,
            lineage=launching.lineage,
            account=Account(config.backend.profile, config.backend.host),
            staging=config.backend.staging,
            host=workspace.connection.host,
            folder=workspace.places.launch(launching.lineage, launching.ref, launching.token),
        )
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
        marker: dict[str, Json] = {
            "run_id": run_id,
            "token": handle.token,
            "submitted": moment,
            "uses": handle.uses,
        }
        workspace.files.put(f"{handle.folder}/{MARKER}", canonical(marker).encode())
        known = handle.with_run(run_id, moment)
        self.keep(ref, known)
        return known

    def forget(self, ref: AttemptRef) -> None:
        """Nothing of the attempt is here any more."""
        self._seen.pop(ref, None)

    def workspace(self, handle: Handle) -> Workspace:
        """The workspace that a launch is in."""
        return self._workspaces.at(handle.account, handle.staging)

    def _begun(self, ref: AttemptRef) -> Handle | None:
        """From the state alone: this machine forgot, or never launched it."""
        lineage, attempt = self._recorded(ref)
        if attempt is None:
            return None
        block = config_of(ref, attempt.spec).backend
        workspace = self._workspaces.of(block)
        found = Handle(
            token=attempt.token,
            lineage=lineage,
            account=Account(block.profile, block.host),
            staging=block.staging,
            host=workspace.connection.host,
            folder=workspace.places.launch(lineage, ref, attempt.token),
            staged=True,
        )
        found = self._marked(ref, found)
        return found if found.run_id is not None else None

    def _marked(self, ref: AttemptRef, handle: Handle) -> Handle:
        """With the run that the marker names, if there is one."""
        try:
            raw = json.loads(self.workspace(handle).files.get(f"{handle.folder}/{MARKER}"))
            found = replace(handle, run_id=int(raw["run_id"]), submitted=float(raw["submitted"]))
        except (Unknown, ValueError, KeyError, TypeError):
            return handle
        self.keep(ref, found)
        return found
