"""Room for the object store of a Ray node: shared memory, or else a disk, which is slow.

By default Ray takes 30 % of the free memory. If /dev/shm is smaller, it takes up to 10 GB of that
all the same, on a disk. Above 10 GB, it does not start (`resolve_object_store_memory` in
`ray/_private/utils.py`, `determine_plasma_store_config` in `ray/_private/services.py`; the same in
2.49.1 and 2.60).
"""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["refused_store", "store_limit"]

_SHARED_MEMORY = "/dev/shm"  # noqa: S108  the place that Ray uses
_SLOW_STORAGE = "RAY_OBJECT_STORE_ALLOW_SLOW_STORAGE"
_DISK_AT_MOST = 10_000_000_000  # bytes
_LEAST, _MOST = 75 << 20, 200_000_000_000  # bytes of a store, the latter where nobody says more
_SHARE = 0.95  # of what is free, as Ray takes it


def store_limit() -> dict[str, str]:
    """Return the variable that keeps Ray from taking more by default than /dev/shm has free. Where
    that is less than Ray needs, the store lies on a disk."""
    room = min(_MOST, int(_free() * _SHARE))
    return {"RAY_DEFAULT_OBJECT_STORE_MAX_MEMORY_BYTES": str(room)} if room >= _LEAST else {}


def refused_store(size: int, variables: Mapping[str, object]) -> str | None:
    """Return why Ray would not start with a store of so many bytes; None if it would."""
    free = _free()
    if size <= max(free, _DISK_AT_MOST) or variables.get(_SLOW_STORAGE):
        return None
    return (
        f"the `ray.object_store_memory` of {size / 1e9:.1f} GB does not fit into {_SHARED_MEMORY}, "
        f"which has {free / 1e9:.1f} GB free, and Ray keeps at most 10 GB on a disk"
    )


def _free() -> int:
    try:
        status = os.statvfs(_SHARED_MEMORY)
    except OSError:
        return 0
    return status.f_bavail * status.f_frsize
