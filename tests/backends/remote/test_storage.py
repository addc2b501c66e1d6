"""What gc is told of launch folders in several staging areas."""

from pathlib import Path

import pytest

from sgpu_decl.backends.attempt_layout import AttemptLayout
from sgpu_decl.backends.remote.launching.remote_launches import RemoteLaunches
from sgpu_decl.backends.remote.staging.remote_gc import PendingGc
from sgpu_decl.backends.remote.staging.remote_layout import RemoteLayout
from sgpu_decl.backends.remote.staging.remote_storage import RemoteStorage
from sgpu_decl.backends.remote.staging.staging_area import StagingArea
from sgpu_decl.errors import BackendError
from sgpu_decl.model.address import Address
from sgpu_decl.model.attempt import AttemptRef
from sgpu_decl.model.jsonable import Json
from sgpu_decl.model.launch import LaunchRecord
from sgpu_decl.model.step_progress import Sent
from sgpu_decl.places.file_place import PlaceEntry, ignore_bytes
from sgpu_decl.places.folder import FolderPlace
from tests.backends.launches import launching_of
from tests.contracts.folder_backend.backend import FolderAttempts


class OfCluster(FolderPlace):
    """The files that one cluster has at `/staging`, where another cluster has others."""

    def __init__(self, there: Path) -> None:
        super().__init__(there)
        self._there = there

    def list(self, folder: str, *, after: str = "") -> tuple[PlaceEntry, ...]:
        return super().list(f"{self._there}{folder}", after=after)


def test_two_areas_with_the_same_paths_are_listed_each(tmp_path: Path) -> None:
    clusters = [tmp_path / "a", tmp_path / "b"]
    areas = [
        StagingArea(RemoteLayout("/staging"), OfCluster(there), key={"cluster": there.name})
        for there in clusters
    ]

    def launch(number: int, cluster: int) -> LaunchRecord:
        request = launching_of(
            ref=AttemptRef(Address.run("test"), number),
            token=f"{number:08d}",
            spec=f'{{"command": "true", "gpus": {cluster + 1}, "type": "CPU"}}',
        )
        return request.record

    launches = [launch(1, 0), launch(2, 1), launch(3, 0), launch(4, 1)]
    launched = RemoteLaunches(AttemptLayout(tmp_path), lambda config: areas[config.gpus - 1])
    attempts = FolderAttempts(launched)
    storage = RemoteStorage(
        AttemptLayout(tmp_path), attempts, PendingGc(tmp_path / "gc.json"), lambda _: areas[0]
    )
    for record, size in zip(launches[:3], (10, 200, 3000), strict=True):
        folder = Path(f"{clusters[launched.config(record).gpus - 1]}{launched.folder(record)}")
        folder.mkdir(parents=True)
        (folder / "log").write_bytes(bytes(size))

    sizes = storage.sizes(launches)

    attempts.close()
    assert {ref.number: size for ref, size in sizes.items()} == {1: 10, 2: 200, 3: 3000}


class Away(FolderPlace):
    """A storage that does not answer."""

    def put(self, path: str, content: bytes | Path, sent: Sent = ignore_bytes) -> None:
        raise BackendError("the storage does not answer")


def test_an_area_that_is_away_keeps_gc_from_no_other(tmp_path: Path) -> None:
    layout, pending = RemoteLayout(str(tmp_path)), PendingGc(tmp_path / "gc.json")
    places: dict[Json, FolderPlace] = {"away": Away(tmp_path), "here": FolderPlace(tmp_path)}
    launches = RemoteLaunches(
        AttemptLayout(tmp_path), lambda _: StagingArea(layout, places["here"], key={})
    )
    storage = RemoteStorage(
        AttemptLayout(tmp_path), FolderAttempts(launches), pending,
        lambda key: StagingArea(layout, places[key["at"]], key=key),
    )  # fmt: skip
    for key in (
        {"at": "away"},
        {"at": "nowhere"},
        {"at": ["x"]},
        {"of something else": 1},
        {"at": "here"},
    ):
        pending.add(key)

    with pytest.raises(BackendError, match="does not answer"):
        storage.collect()

    assert pending.all() == ({"at": "away"},)
