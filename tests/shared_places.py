"""Empty places for a state that machines share."""

import hashlib
from pathlib import Path

import pytest

from sgpu_decl.storing.folder.shared_folder import MARKER
from sgpu_decl.storing.stores import POSTGRES, SharedPlace, shared_store

__all__ = ["break_lock", "new_place"]


def new_place(request: pytest.FixtureRequest, kind: str, folder: Path) -> SharedPlace:
    """A place of that kind for one test, whose own folder is `folder`."""
    if kind == POSTGRES:
        name = hashlib.sha256(str(folder).encode()).hexdigest()[:12]
        url = request.getfixturevalue("postgres")
        return SharedPlace(kind=kind, address=url, project="p", schema=f"test_{name}")
    shared = folder / "shared"
    shared.mkdir()
    (shared / MARKER).touch()
    return SharedPlace(kind=kind, address=str(shared), project="p")


def break_lock(place: SharedPlace, folder: Path) -> None:
    """What `sgpu state unlock` does on another machine, whose copy of the state is in `folder`."""
    store = shared_store(place, folder / "default")
    holder = store.holder()
    assert holder is not None
    store.unlock(holder.id)
    store.close()
