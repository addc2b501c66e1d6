"""Room for the object store of a Ray node: shared memory, or else a disk, which is slow.

A node gets 30 % of the memory that the run has there, if nothing else is declared. Plan and agent
use this rule: Ray's own default follows what is free at that moment, so no plan could tell it. If
/dev/shm is smaller than a store, Ray takes up to 10 GB of a disk. Above that, it does not start
(`determine_plasma_store_config` in `ray/_private/services.py`; the same in 2.49.1 and 2.60).
"""

from __future__ import annotations

import os

from sgpu_decl.agent.system.oom import usable_memory

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

_SHARED_MEMORY = "/dev/shm"  # noqa: S108  the place that Ray uses
_SLOW_STORAGE = "RAY_OBJECT_STORE_ALLOW_SLOW_STORAGE"
_LEAST = 75 << 20  # bytes; Ray starts with no smaller store
_DISK_AT_MOST = 10_000_000_000  # bytes
_SHARE = 0.3  # of the memory
# Of what is available: Ray refuses a store that leaves its tasks less than 5 % of the memory
# (`ray/_private/resource_and_label_spec.py`).
_OF_AVAILABLE = 0.5
_OF_SHARED = 0.95  # of what is free in shared memory, as Ray takes it: others use some meanwhile


def default_store() -> int:
    """Return the bytes of the store of a node on this machine, if nothing else is declared."""
    memory, available = usable_memory()
    return store_size(memory, available, shared_memory())


def store_size(memory: int, available: int, shared: int) -> int:
    """Return the same by numbers of bytes: the memory that a run may use, what the machine has
    available of it, and what is free in shared memory."""
    room = int(shared * _OF_SHARED)
    if room < _LEAST:
        room = _DISK_AT_MOST
    return max(_LEAST, min(int(memory * _SHARE), int(available * _OF_AVAILABLE), room))


def refuses_store(size: int, shared: int, variables: Mapping[str, object]) -> bool:
    """Return whether Ray would not start with a store of so many bytes.

    Args:
        shared: the bytes that are free in shared memory.
        variables: those of Ray's processes.
    """
    return size > max(shared, _DISK_AT_MOST) and not variables.get(_SLOW_STORAGE)


def shared_memory() -> int:
    """Return the bytes that are free in shared memory; 0 if there is none."""
    try:
        status = os.statvfs(_SHARED_MEMORY)
    except OSError:
        return 0
    return status.f_bavail * status.f_frsize
