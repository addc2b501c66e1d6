"""Empty places for a state that machines share."""

import hashlib
from dataclasses import fields
from pathlib import Path

import pytest

from sgpu_decl.places.folder import MARKER
from sgpu_decl.storing.stores import (
    DATABRICKS,
    OBJECT,
    POSTGRES,
    SHARED,
    SharedPlace,
    shared_store,
)
from tests.object_server import ObjectServer

__all__ = ["PLACES", "VOLUME", "break_lock", "fields_of", "folder_on_disk", "new_place"]

VOLUME = "volume"
PLACES = (*SHARED, VOLUME)
"""What `new_place` knows: a state of the kind `databricks` may lie on a volume, too."""

_IN_WORKSPACE = {DATABRICKS: "/Workspace/Shared/team/state", VOLUME: "/Volumes/main/ml/state"}


def new_place(request: pytest.FixtureRequest, kind: str, folder: Path) -> SharedPlace:
    """A place of that kind for one test, whose own folder is `folder`."""
    name = hashlib.sha256(str(folder).encode()).hexdigest()[:12]
    if kind == OBJECT:
        server: ObjectServer = request.getfixturevalue("object_server")
        request.getfixturevalue("object_login")
        server.make_bucket(f"test-{name}")
        address = f"s3://test-{name}/team/sgpu"
        return SharedPlace(kind=kind, address=address, project="p", endpoint=server.endpoint)
    if kind == POSTGRES:
        url = request.getfixturevalue("postgres")
        return SharedPlace(kind=kind, address=url, project="p", schema=f"test_{name}")
    if kind in _IN_WORKSPACE:
        place = SharedPlace(kind=DATABRICKS, address=_IN_WORKSPACE[kind], project="p")
        folder_on_disk(request, place).mkdir(parents=True)
        return place
    shared = folder / "shared"
    shared.mkdir()
    (shared / MARKER).touch()
    return SharedPlace(kind=kind, address=str(shared), project="p")


def fields_of(place: SharedPlace) -> dict[str, str | None]:
    """What another process makes the same place of."""
    return {field.name: getattr(place, field.name) for field in fields(place)}


def folder_on_disk(request: pytest.FixtureRequest, place: SharedPlace) -> Path:
    """Where the files of a place lie. The workspace of tests keeps files as such."""
    if place.kind == DATABRICKS:
        tenant: Path = request.getfixturevalue("files_tenant")
        return tenant / place.address.lstrip("/")
    return Path(place.address)


def break_lock(place: SharedPlace, folder: Path) -> None:
    """What `sgpu state unlock` does on another machine, whose copy of the state is in `folder`."""
    store = shared_store(place, folder / "default")
    holder = store.holder()
    assert holder is not None
    store.unlock(holder.id)
    store.close()
