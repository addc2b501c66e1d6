"""Attempts on this machine, of this checkout or of another one of its user."""

from pathlib import Path

from sgpu_decl.backends.base import Elsewhere
from sgpu_decl.backends.host.folder_attempts import FolderAttempts
from sgpu_decl.model.launch import LaunchRecord


class LocalAttempts(FolderAttempts):
    """Of a state that machines share, some were launched on others."""

    def elsewhere(self, record: LaunchRecord) -> Elsewhere | None:
        if record.reference is None or self._place(record) is not None:
            return None
        from sgpu_decl.backends.local.launch_site import site_in

        return Elsewhere(
            reason=f"it was launched {site_in(record.reference).words}",
            hint="give this command there. If that machine is gone for good, `sgpu state rm "
            f"{record.ref.address}` removes the run from the state and stops nothing",
        )

    def _place(self, record: LaunchRecord) -> Path | None:
        """The folder of an attempt; None if it is elsewhere."""
        if record.reference is None:  # no other machine has this state
            return self._layout.found(record)
        from sgpu_decl.backends.local.launch_site import attempt_folder

        return attempt_folder(record, self._layout)

    def _project_of(self, record: LaunchRecord) -> Path:
        """The checkout that an attempt was launched from."""
        if record.reference is None:
            return self._project
        from sgpu_decl.backends.local.launch_site import launched_here, site_in

        if launched_here(record, self._layout):  # it may have got another name
            return self._project
        return Path(site_in(record.reference).project)
