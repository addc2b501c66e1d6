"""Where launches on Ray clusters lie."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from sgpu_decl.backends.attempt_layout import AttemptLayout
from sgpu_decl.backends.ray.planning.group_shape import options_of
from sgpu_decl.backends.remote.launches import RemoteLaunches
from sgpu_decl.backends.remote.staging_area import StagingArea
from sgpu_decl.model.launch import LaunchRecord

if TYPE_CHECKING:
    from sgpu_decl.config.run import RunConfig

__all__ = ["RayLaunches"]


class RayLaunches(RemoteLaunches):
    """Launches in `storage`, or on the head node of a cluster.

    Args:
        area_of: gives the staging area that a run's `backend` block means now.
        head_area: gives that of a cluster without storage, by its address.
    """

    def __init__(
        self,
        layout: AttemptLayout,
        area_of: "Callable[[RunConfig], StagingArea]",
        head_area: Callable[[str], StagingArea],
    ) -> None:
        super().__init__(layout, area_of)
        self._head_area = head_area

    def area(self, record: LaunchRecord) -> StagingArea:
        """What was started without storage lies where its job is, whatever `RAY_ADDRESS` says
        now."""
        marker = self.memory.get(record).get("marker")
        if marker is not None and options_of(self.config(record)).storage is None:
            return self._head_area(marker["address"])
        return super().area(record)
