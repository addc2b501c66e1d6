"""The Ray backend: what its parts share, opened for one project and target."""

import time
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from sgpu_decl.backends.attempt_layout import AttemptLayout
from sgpu_decl.backends.backend_context import BackendContext
from sgpu_decl.backends.base import Backend
from sgpu_decl.backends.ray.clusters import Clusters
from sgpu_decl.backends.ray.head.head_reader import ROOT
from sgpu_decl.backends.ray.head.packaged_files import PackagedFiles
from sgpu_decl.backends.ray.launching.ray_launcher import RayLauncher
from sgpu_decl.backends.ray.launching.ray_launches import RayLaunches
from sgpu_decl.backends.ray.options import RayOptions
from sgpu_decl.backends.ray.planning.group_shape import options_of
from sgpu_decl.backends.ray.planning.ray_survey import RaySurvey
from sgpu_decl.backends.ray.ray_attempts import RayAttempts
from sgpu_decl.backends.remote.launching.launch_hosts import LaunchHosts
from sgpu_decl.backends.remote.staging.remote_gc import PendingGc
from sgpu_decl.backends.remote.staging.remote_layout import RemoteLayout
from sgpu_decl.backends.remote.staging.remote_storage import RemoteStorage
from sgpu_decl.backends.remote.staging.staging_area import StagingArea
from sgpu_decl.config.run import RunConfig
from sgpu_decl.model.launch import LaunchRecord
from sgpu_decl.places.folder import FolderPlace

_EXIT = 10.0  # seconds in which a driver exits that has written its outcome
_PAUSE = 0.1


class RayStorage(RemoteStorage):
    """Nothing is deleted of an attempt whose driver has not exited: a job that goes on without a
    launch folder is a launch whose driver has not written that yet (`RayLaunches.marker`)."""

    def __init__(
        self,
        layout: AttemptLayout,
        attempts: RayAttempts,
        pending_gc: PendingGc,
        area_with: Callable[[Mapping[str, Any]], StagingArea],
    ) -> None:
        super().__init__(layout, attempts, pending_gc, area_with)
        self._exits = attempts.exits

    def free(self, record: LaunchRecord) -> int:
        deadline = time.monotonic() + _EXIT
        while self._exits(record):
            if time.monotonic() > deadline:
                return 0  # the next gc does it
            time.sleep(_PAUSE)
        return super().free(record)


def open_ray(context: BackendContext) -> Backend:
    clusters = context.shared(Clusters)

    def addresses(owner: str) -> list[str | None] | None:
        if not context.shared_state():
            return None
        blocks = context.backend_blocks(owner)
        return [block.address for block in blocks if isinstance(block, RayOptions)]

    clusters.guard(addresses, LaunchHosts(context.state_dir / "ray-hosts.json"))

    @cache
    def shared_area(root: str) -> StagingArea:
        return StagingArea(RemoteLayout(root), FolderPlace(Path(root)), key={"root": root})

    @cache
    def head_area(url: str) -> StagingArea:
        files = PackagedFiles(clusters.at(url), context.state_dir / "ray-packages")
        key = {"address": url}
        return StagingArea(
            RemoteLayout(ROOT),
            files,
            key=key,
            has_unseen_launch=files.has_unseen_launch,
            delete_copies=files.free_nodes,
        )

    def area_of(config: RunConfig) -> StagingArea:
        storage = options_of(config).storage
        if storage is not None:
            return shared_area(storage)
        return head_area(clusters.of(config).address.url)

    def area_with(key: Mapping[str, Any]) -> StagingArea:
        return shared_area(key["root"]) if "root" in key else head_area(key["address"])

    launches = RayLaunches(
        context.layout, area_of, head_area, clusters, shared_state=context.shared_state
    )
    attempts = RayAttempts(launches, clusters)
    pending = PendingGc(context.state_dir / "ray-gc.json")

    def close() -> None:
        attempts.close()
        clusters.close()

    return Backend(
        survey=RaySurvey(context.pythons, clusters, context.lineage),
        launcher=RayLauncher(context, clusters, launches, attempts),
        attempts=attempts,
        storage=RayStorage(context.layout, attempts, pending, area_with),
        close=close,
    )
