"""Where launches on Ray clusters lie."""

import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from sgpu_decl.backends.attempt_layout import AttemptLayout
from sgpu_decl.backends.ray.api.cluster_tables import find_job, session_of
from sgpu_decl.backends.ray.api.dashboard_address import address_of
from sgpu_decl.backends.ray.cluster.job_verdict import ACTIVE
from sgpu_decl.backends.ray.clusters import Clusters
from sgpu_decl.backends.ray.head.packaged_files import FOLDER, PackagedFiles
from sgpu_decl.backends.ray.planning.group_shape import options_of
from sgpu_decl.backends.remote.launching.remote_launches import RemoteLaunches, is_started
from sgpu_decl.backends.remote.launching.remote_reference import reference_facts
from sgpu_decl.backends.remote.staging.remote_layout import MARKER, Uses
from sgpu_decl.backends.remote.staging.staging_area import StagingArea
from sgpu_decl.model.jsonable import Json
from sgpu_decl.model.launch import LaunchRecord
from sgpu_decl.places.file_place import PlaceMissing

if TYPE_CHECKING:
    from sgpu_decl.backends.ray.api.dashboard import Dashboard
    from sgpu_decl.config.run import RunConfig


class RayLaunches(RemoteLaunches):
    """Without storage, the marker of a launch that was started is in the package of its job. Until
    the driver has written it, the job says that the launch was started.

    The reference of a launch names the `address` and the `session` of its cluster. An address that
    leads to this machine means something else on others: a reference in a state that they share
    names the `machine`, too.

    Args:
        area_of: gives the staging area that a run's `backend` block means now.
        head_area: gives that of a cluster without storage, by its address.
        shared_state: whether other machines have the same state.
    """

    def __init__(
        self,
        layout: AttemptLayout,
        area_of: "Callable[[RunConfig], StagingArea]",
        head_area: Callable[[str], StagingArea],
        clusters: Clusters,
        shared_state: Callable[[], bool] = lambda: False,
    ) -> None:
        super().__init__(layout, area_of)
        self._shared_state = shared_state
        self._head_area = head_area
        self._clusters = clusters

    def place(self, config: "RunConfig") -> Mapping[str, Json]:
        dashboard = self._clusters.of(config)
        place = {"address": dashboard.address.url, "session": session_of(dashboard)}
        if dashboard.address.is_loopback and self._shared_state():
            place["machine"] = os.uname().nodename
        return place

    def outcome(self, marker: Mapping[str, Any]) -> Mapping[str, Json]:
        return {name: marker[name] for name in ("address", "session")}

    def dashboard(self, record: LaunchRecord) -> "Dashboard":
        """That of the cluster which a launch was begun for, whatever `RAY_ADDRESS` says now."""
        marker = self.memory.get(record).get("marker")
        place = marker or reference_facts(record)
        if "address" in place:
            return self._clusters.at(place["address"], record.owner)
        address = address_of(options_of(self.config(record)).address, os.environ)
        return self._clusters.at(address.url, record.owner)

    def area(self, record: LaunchRecord) -> StagingArea:
        """What was started without storage lies where its job is."""
        if options_of(self.config(record)).storage is None:
            return self._head_area(self.dashboard(record).address.url)
        return super().area(record)

    def marker(self, record: LaunchRecord) -> Mapping[str, Any] | None:
        marker = super().marker(record)
        packaged, folder = self._packaged(record), self.folder(record)
        if packaged is None:
            return marker
        if marker is not None and is_started(marker):
            packaged.forget(folder)  # a process that was killed in `mark` had not
            return marker
        dashboard = self.dashboard(record)
        job = find_job(dashboard, record.token)
        if job is None or (job.get("metadata") or {}).get(FOLDER) != folder:
            return marker
        path = f"{folder}/{MARKER}"
        started: Any
        try:
            started = dashboard.parsed(path, packaged.get_from_head(path))
            for name in ("token", "address", "session"):
                dashboard.part(path, started, name, str)
        except PlaceMissing:
            if job["status"] not in ACTIVE:
                return marker  # its folder was freed, or its driver could not write it
            started = {"token": record.token, "address": dashboard.address.url}
            started["session"] = session_of(dashboard)
        marker = dict(started)
        self.memory.remember(record, marker=marker)
        packaged.forget(folder)
        return marker

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
