"""Where the object store of a Ray node finds room."""

import os

import pytest

from sgpu_decl.agent.ray.ray_object_store import (
    default_store,
    refuses_store,
    shared_memory,
    store_size,
)

GB = 1_000_000_000
SLOW = {"RAY_OBJECT_STORE_ALLOW_SLOW_STORAGE": "1"}


@pytest.mark.parametrize(
    ("memory", "available", "shared", "store"),
    [
        (100 * GB, 90 * GB, 64 * GB, 30 * GB),
        (1000 * GB, 900 * GB, 500 * GB, 300 * GB),
        (100 * GB, 90 * GB, 10 * GB, int(9.5 * GB)),
        (100 * GB, 20 * GB, 64 * GB, 10 * GB),  # Ray needs some for its tasks
        (8 * GB, 8 * GB, 64_000_000, int(2.4 * GB)),  # of a disk
        (100 * GB, 90 * GB, 64_000_000, 10 * GB),  # of a disk, which Ray takes so much of
        (200_000_000, 100_000_000, 64 * GB, 75 << 20),  # Ray takes no less
    ],
)
def test_a_node_gets_a_share_of_its_memory_where_there_is_room(
    memory: int, available: int, shared: int, store: int
) -> None:
    assert store_size(memory, available, shared) == store


def test_the_store_of_this_machine_fits_into_it() -> None:
    total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    assert 75 << 20 <= default_store() <= max(75 << 20, 0.3 * total)
    assert not refuses_store(default_store(), shared_memory(), {})


def test_a_store_that_ray_would_not_start_with_is_refused() -> None:
    assert not refuses_store(2 * GB, 2 * GB, {})
    assert not refuses_store(10 * GB, 2 * GB, {})  # on a disk
    assert refuses_store(12 * GB, 2 * GB, {})
    assert not refuses_store(12 * GB, 2 * GB, SLOW)
