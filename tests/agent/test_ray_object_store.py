"""Where the object store of a Ray node finds room."""

from types import SimpleNamespace

import pytest

from sgpu_decl.agent.ray_object_store import refused_store, store_limit

LIMIT = "RAY_DEFAULT_OBJECT_STORE_MAX_MEMORY_BYTES"
SLOW = {"RAY_OBJECT_STORE_ALLOW_SLOW_STORAGE": "1"}


@pytest.fixture
def free(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """What /dev/shm has free, in bytes."""
    status = SimpleNamespace(f_bavail=request.param // 1000, f_frsize=1000)
    monkeypatch.setattr("sgpu_decl.agent.ray_object_store.os.statvfs", lambda _: status)


@pytest.mark.usefixtures("free")
@pytest.mark.parametrize(
    ("free", "limit"),
    [
        (64_000_000, None),  # too little: Ray takes a disk
        (1_000_000_000, "950000000"),
        (900_000_000_000, "200000000000"),
    ],
    indirect=["free"],
)
def test_by_default_ray_takes_no_more_than_is_free(limit: str | None) -> None:
    assert store_limit().get(LIMIT) == limit


@pytest.mark.usefixtures("free")
@pytest.mark.parametrize("free", [2_000_000_000], indirect=True)
def test_a_store_that_ray_would_not_start_with_is_refused() -> None:
    assert refused_store(2_000_000_000, {}) is None
    assert refused_store(10_000_000_000, {}) is None  # on a disk
    refused = refused_store(12_000_000_000, {})
    assert refused is not None
    assert "of 12.0 GB does not fit into /dev/shm, which has 2.0 GB free" in refused
    assert refused_store(12_000_000_000, SLOW) is None
