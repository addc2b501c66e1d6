"""Launches on other machines: staged in a launch folder, and started by the platform."""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from sgpu_decl.backends.base import Launcher, Launching
from sgpu_decl.backends.remote.attempts import RemoteAttempts, end_earlier
from sgpu_decl.backends.remote.launch_folder import NodeProgram
from sgpu_decl.backends.remote.launches import RemoteLaunches
from sgpu_decl.backends.remote.uploader import Uploader
from sgpu_decl.backends.required_code import require_code
from sgpu_decl.diagnostics.diagnostic import Diagnostic
from sgpu_decl.errors import BackendError, OutcomeUnknown, SgpuError
from sgpu_decl.model.jsonable import Json
from sgpu_decl.model.launch import LaunchRecord
from sgpu_decl.model.step_progress import Progress

if TYPE_CHECKING:
    from sgpu_decl.backends.backend_context import BackendContext

__all__ = ["RemoteLauncher"]


class RemoteLauncher(Launcher):
    """Stages launches, and marks those that were staged. A backend says how nodes are started
    (`start`) and stopped (`cancel`).

    Args:
        program: how the backend starts the agent on its nodes.
    """

    def __init__(
        self,
        context: "BackendContext",
        launches: RemoteLaunches,
        attempts: RemoteAttempts,
        program: NodeProgram,
    ) -> None:
        self._store = context.store
        self._launches = launches
        self._attempts = attempts
        self._uploader = Uploader(context, lambda item: launches.area(item.record), program)

    @abstractmethod
    def start(self, launching: Launching, folder: str) -> Mapping[str, Json]:
        """Start the nodes of a launch, whose launch folder is whole. A second call with the same
        token starts nothing new.

        Returns:
            What the marker is to say of it, such as the id of the run that it became.

        Raises:
            OutcomeUnknown: it may have been started.
            BackendError: nothing was started.
        """

    def check(self, launching: Launching) -> None:
        require_code(self._store(), launching)

    def prepare(self, launchings: Sequence[Launching], progress: Progress) -> Sequence[Diagnostic]:
        self._uploader.share(
            [item for item in launchings if not self.staged(item.record)], progress
        )
        return ()

    def stage(self, launching: Launching) -> None:
        if self.staged(launching.record):
            return
        try:
            self._launches.mark(launching.record, self._uploader.fill(launching))
        except SgpuError:
            self._unstage(launching.record)
            raise
        finally:
            self._uploader.release(launching.ref)

    def staged(self, record: LaunchRecord) -> bool:
        return self._launches.marker(record) is not None

    def launch(self, launching: Launching) -> str:
        record, folder = launching.record, self._launches.folder(launching.record)
        marker = self._launches.marker(record)
        if marker is None:
            raise BackendError(f"`{record.ref}` is not staged", code="launch_failed")
        end_earlier(self, self._attempts, launching.earlier)
        try:
            facts = self.start(launching, folder)
        except OutcomeUnknown:
            raise
        except BackendError:
            self._unstage(record)
            raise
        if facts:
            self._launches.mark(record, marker["uses"], **facts)
        return folder

    def _unstage(self, record: LaunchRecord) -> None:
        """Delete a launch folder that nothing was started from: it would keep gc away."""
        from sgpu_decl.backends.remote.remote_gc import unstage_launch

        with suppress(BackendError):
            unstage_launch(self._launches.area(record), self._launches.folder(record))
