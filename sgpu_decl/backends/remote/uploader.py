"""Uploads of all launches of one apply, with the leases that keep gc away from what they share."""

import tempfile
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from sgpu_decl.backends.launch_request import LaunchRequest
from sgpu_decl.backends.remote.launch_folder import NodeProgram
from sgpu_decl.backends.remote.lease import Lease
from sgpu_decl.backends.remote.remote_layout import Uses
from sgpu_decl.backends.remote.staging_area import StagingArea
from sgpu_decl.backends.remote.uploads import (
    fill_launch_folder,
    upload_agent,
    upload_code,
    upload_environment,
)
from sgpu_decl.errors import BackendError, SgpuError
from sgpu_decl.model.attempt import AttemptRef
from sgpu_decl.model.step_progress import Progress, Quiet
from sgpu_decl.system_errors import error_text

if TYPE_CHECKING:
    from sgpu_decl.backends.backend_context import BackendContext

__all__ = ["Uploader"]


class Uploader:
    """A backend prepares launches with `share`, stages each with `fill`, and ends with `release`.

    Args:
        area_of: the staging area of a launch. Launches of one area get the same object.
        program: how the backend starts its nodes.
    """

    def __init__(
        self,
        context: "BackendContext",
        area_of: Callable[[LaunchRequest], StagingArea],
        program: NodeProgram,
    ) -> None:
        self._project = context.project
        self._store = context.store()
        self._environments = context.environments
        self._area_of = area_of
        self._program = program
        self._leases: dict[AttemptRef, Lease] = {}

    def share(self, launchings: Sequence[LaunchRequest], progress: Progress) -> None:
        """Upload what launches share with others: agent, code, environments. From now on each has
        a lease, until `release`.

        Raises:
            SgpuError: it is missing here, or the storage refuses it.
        """
        groups: dict[StagingArea, list[LaunchRequest]] = {}
        for launching in launchings:
            groups.setdefault(self._area_of(launching), []).append(launching)
        for area, group in groups.items():
            apart = area.layout.command_root is not None
            own = None if apart else self._program.lease_file(group[0])
            lease = Lease(area, [item.record for item in group], own)
            lease.begin()
            try:
                for launching in group:
                    self._upload(launching, area, progress)
            except SgpuError:
                lease.drop()
                raise
            self._leases |= dict.fromkeys((item.ref for item in group), lease)

    def fill(self, launching: LaunchRequest) -> Uses:
        """Upload the launch folder, and what it shares unless that was done; return what it needs.

        Raises:
            SgpuError: it is missing here, or the storage refuses it.
        """
        if launching.ref not in self._leases:
            self.share([launching], Quiet())
        try:
            return self._filled(launching)
        except SgpuError:
            self.release(launching.ref)
            raise

    def release(self, ref: AttemptRef) -> None:
        """A launch has its marker, or failed: it needs no lease any more."""
        lease = self._leases.pop(ref, None)
        if lease is not None:
            lease.release(ref)

    def _filled(self, launching: LaunchRequest) -> Uses:
        area = self._area_of(launching)
        uses = self._upload(launching, area, Quiet())
        try:
            fill_launch_folder(
                area,
                launching,
                self._program,
                project=self._project,
                root=launching.code_root(self._project),
                store=self._store,
                environment=uses.environment,
            )
        except OSError as error:
            raise BackendError(
                f"`{launching.ref}` could not be staged: {error_text(error)}",
                hint=f"see that there is room in `{tempfile.gettempdir()}`",
                code="launch_failed",
            ) from error
        return uses

    def _upload(self, launching: LaunchRequest, area: StagingArea, progress: Progress) -> Uses:
        agent = upload_agent(area, progress)
        code, environment = launching.inputs.code_digest, launching.inputs.environment_digest
        if code is not None:
            upload_code(area, self._store, code, progress)
        if environment is not None:
            environment = upload_environment(area, self._environments(), environment, progress)
        return Uses(agent=agent, code=code, environment=environment)
