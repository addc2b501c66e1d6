"""The Ray backend: what its parts share, opened for one project and target."""

from functools import cache
from pathlib import Path

from sgpu_decl.backends.backend_context import BackendContext
from sgpu_decl.backends.base import Backend
from sgpu_decl.backends.ray.clusters import Clusters
from sgpu_decl.backends.ray.launching.launcher import RayLauncher
from sgpu_decl.backends.ray.planning.group_shape import options_of
from sgpu_decl.backends.ray.planning.survey import RaySurvey
from sgpu_decl.backends.ray.watching.attempts import RayAttempts
from sgpu_decl.backends.remote.folder_files import FolderFiles
from sgpu_decl.backends.remote.launches import RemoteLaunches
from sgpu_decl.backends.remote.pending_gc import PendingGc
from sgpu_decl.backends.remote.remote_layout import RemoteLayout
from sgpu_decl.backends.remote.staging_area import StagingArea
from sgpu_decl.backends.remote.storage import RemoteStorage
from sgpu_decl.config.run import RunConfig


def open_ray(context: BackendContext) -> Backend:
    @cache
    def area(root: str) -> StagingArea:
        return StagingArea(RemoteLayout(root), FolderFiles(Path(root)), key={"root": root})

    def area_of(config: RunConfig) -> StagingArea:
        storage = options_of(config).storage
        assert storage is not None  # noqa: S101  plans refuse runs without one
        return area(storage)

    clusters = Clusters()
    launches = RemoteLaunches(context.layout, area_of)
    attempts = RayAttempts(launches, clusters)
    pending = PendingGc(context.state_dir / "ray-gc.json")

    def close() -> None:
        attempts.close()
        clusters.close()

    return Backend(
        survey=RaySurvey(context.pythons),
        launcher=RayLauncher(context, clusters, launches, attempts),
        attempts=attempts,
        storage=RemoteStorage(context.layout, attempts, pending, lambda key: area(key["root"])),
        close=close,
    )
