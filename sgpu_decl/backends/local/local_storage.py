"""What attempts leave on this machine."""

import os
import shutil
from collections.abc import Callable
from typing import TYPE_CHECKING

from sgpu_decl.agent.attempt import attempt_status
from sgpu_decl.agent.attempt.staged_folder import active, collect_left, discard
from sgpu_decl.atomic_files import LEFT_AFTER
from sgpu_decl.backends.attempt_layout import AttemptLayout
from sgpu_decl.backends.base import Storage
from sgpu_decl.backends.local.launch_site import attempt_folder, launched_here
from sgpu_decl.errors import BackendError
from sgpu_decl.model.address import Address
from sgpu_decl.model.launch import LaunchRecord
from sgpu_decl.system_errors import advice, error_text

if TYPE_CHECKING:
    from sgpu_decl.environments.environment_store import EnvironmentStore


class LocalStorage(Storage):
    """Only what was launched from this checkout is freed, whatever lies here under its name. The
    store of environments is opened where one is used."""

    def __init__(
        self, layout: AttemptLayout, environments: "Callable[[], EnvironmentStore]"
    ) -> None:
        self._layout = layout
        self._environments = environments

    def size(self, record: LaunchRecord) -> int:
        if not launched_here(record, self._layout):
            return 0
        return self._layout.size(self._layout.found(record))

    def free(self, record: LaunchRecord) -> int:
        folder = self._layout.found(record)
        try:
            if not launched_here(record, self._layout) or active(folder):
                return 0
            size = self.size(record)
            discard(folder)
        except OSError as error:
            raise BackendError(
                f"`{folder}` cannot be deleted: {error_text(error)}",
                hint=advice(error),
                code="permission_denied" if isinstance(error, PermissionError) else "backend_error",
            ) from error
        return size

    def unstage(self, record: LaunchRecord) -> None:
        folder = self._layout.found(record)
        if launched_here(record, self._layout) and not active(folder):
            shutil.rmtree(folder / "code", ignore_errors=True)

    def move(self, source: Address, destination: Address) -> None:
        self._layout.move(source, destination)

    def collect(self) -> int:
        """Delete what killed processes left beside attempts; what is shared lies in the stores."""
        return collect_left(f"{self._layout.state_dir}/runs", LEFT_AFTER.total_seconds())

    def kill_orphans(self, record: LaunchRecord) -> int:
        folder = attempt_folder(record, self._layout)
        return attempt_status.clear_remains(folder) if folder is not None else 0

    def verify_environment(self, digest: str) -> tuple[str, ...]:
        # Others are kept from it by the modes of files and folders.
        return self._environments().examine(digest) if os.geteuid() == 0 else ()
