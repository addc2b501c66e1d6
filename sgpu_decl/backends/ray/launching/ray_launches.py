"""Where launches on Ray clusters lie."""

import json
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from sgpu_decl.backends.attempt_layout import AttemptLayout
from sgpu_decl.backends.ray.api.job_table import find_job, session_of
from sgpu_decl.backends.ray.cluster.job_verdict import ACTIVE
from sgpu_decl.backends.ray.clusters import Clusters
from sgpu_decl.backends.ray.head.packaged_files import FOLDER, PackagedFiles
from sgpu_decl.backends.ray.planning.group_shape import options_of
from sgpu_decl.backends.remote.files import RemoteMissing
from sgpu_decl.backends.remote.launches import RemoteLaunches, is_started
from sgpu_decl.backends.remote.remote_layout import MARKER, Uses
from sgpu_decl.backends.remote.staging_area import StagingArea
from sgpu_decl.model.jsonable import Json
from sgpu_decl.model.launch import LaunchRecord

if TYPE_CHECKING:
    from sgpu_decl.config.run import RunConfig

__all__ = ["RayLaunches"]


class RayLaunches(RemoteLaunches):
    """Without storage, the marker of a launch that was started is in the package of its job. Until
    the driver has written it, the job says that the launch was started.

    Args:
        area_of: gives the staging area that a run's `backend` block means now.
        head_area: gives that of a cluster without storage, by its address.
    """

    def __init__(
        self,
        layout: AttemptLayout,
        area_of: "Callable[[RunConfig], StagingArea]",
        head_area: Callable[[str], StagingArea],
        clusters: Clusters,
    ) -> None:
        super().__init__(layout, area_of)
        self._head_area = head_area
        self._clusters = clusters

    def area(self, record: LaunchRecord) -> StagingArea:
        """What was started without storage lies where its job is, whatever `RAY_ADDRESS` says
        now."""
        marker = self.memory.get(record).get("marker")
        if marker is not None and options_of(self.config(record)).storage is None:
            return self._head_area(marker["address"])
        return super().area(record)

    def marker(self, record: LaunchRecord) -> Mapping[str, Any] | None:
        marker = super().marker(record)
        packaged, folder = self._packaged(record), self.folder(record)
        if packaged is None:
            return marker
        if marker is not None and is_started(marker):
            packaged.forget(folder)  # a process that was killed in `mark` had not
            return marker
        dashboard = self._clusters.of(self.config(record))
        job = find_job(dashboard, record.token)
        if job is None or (job.get("metadata") or {}).get(FOLDER) != folder:
            return marker
        started: dict[str, Any]
        try:
            started = json.loads(packaged.get_from_head(f"{folder}/{MARKER}"))
        except RemoteMissing:
            if job["status"] not in ACTIVE:
                return marker  # its folder was freed, or its driver could not write it
            started = {"token": record.token, "address": dashboard.address.url}
            started["session"] = session_of(dashboard)
        self.memory.remember(record, marker=started)
        packaged.forget(folder)
        return started

    def mark(self, record: LaunchRecord, uses: Uses | Mapping[str, Json], **facts: Json) -> None:
        packaged = self._packaged(record)
        if not facts or packaged is None:
            super().mark(record, uses, **facts)
            return
        self.memory.remember(record, marker={"token": record.token, **facts})
        packaged.forget(self.folder(record))

    def unstage(self, record: LaunchRecord) -> None:
        packaged = self._packaged(record)
        if packaged is not None:
            packaged.forget(self.folder(record))  # also where the cluster does not answer
        super().unstage(record)

    def _packaged(self, record: LaunchRecord) -> PackagedFiles | None:
        """The files of its staging area, if there is no storage."""
        files = self.area(record).files
        return files if isinstance(files, PackagedFiles) else None
