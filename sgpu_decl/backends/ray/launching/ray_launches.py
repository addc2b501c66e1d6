"""Where launches on Ray clusters lie."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from sgpu_decl.backends.attempt_layout import AttemptLayout
from sgpu_decl.backends.ray.clusters import Clusters
from sgpu_decl.backends.ray.head.packaged_files import FOLDER, PackagedFiles, is_beginning
from sgpu_decl.backends.ray.launching.jobs import find_job, session_of
from sgpu_decl.backends.remote.launches import RemoteLaunches, is_started
from sgpu_decl.backends.remote.remote_layout import Uses
from sgpu_decl.backends.remote.staging_area import StagingArea
from sgpu_decl.model.jsonable import Json
from sgpu_decl.model.launch import LaunchRecord

if TYPE_CHECKING:
    from sgpu_decl.config.run import RunConfig

__all__ = ["RayLaunches"]


class RayLaunches(RemoteLaunches):
    """Without storage, the marker of a launch that was started is in the package of its job. Until
    the driver has written it, the job says that the launch was started."""

    def __init__(
        self,
        layout: AttemptLayout,
        area_of: "Callable[[RunConfig], StagingArea]",
        clusters: Clusters,
    ) -> None:
        super().__init__(layout, area_of)
        self._clusters = clusters

    def marker(self, record: LaunchRecord) -> Mapping[str, Any] | None:
        marker = super().marker(record)
        if (marker is not None and is_started(marker)) or self._packaged(record) is None:
            return marker
        dashboard = self._clusters.of(self.config(record))
        job = find_job(dashboard, record.token)
        if job is None or (job.get("metadata") or {}).get(FOLDER) != self.folder(record):
            return marker
        if not is_beginning(job):  # it has written the marker meanwhile, or its folder was freed
            return super().marker(record)
        facts = {"address": dashboard.address.url, "session": session_of(dashboard)}
        started = {"token": record.token, **facts}
        self.memory.remember(record, marker=started)
        return started

    def mark(self, record: LaunchRecord, uses: Uses | Mapping[str, Json], **facts: Json) -> None:
        packaged = self._packaged(record)
        if not facts or packaged is None:
            super().mark(record, uses, **facts)
            return
        self.memory.remember(record, marker={"token": record.token, **facts})
        packaged.forget(self.folder(record))

    def _packaged(self, record: LaunchRecord) -> PackagedFiles | None:
        """The files of its staging area, if there is no storage."""
        files = self.area(record).files
        return files if isinstance(files, PackagedFiles) else None
