"""What a box is: its system, its GPUs and who uses them, and the room for runs."""

from __future__ import annotations

import os
import platform
import shutil
import sys
import time

from sgpu_decl.agent.host.gpu_users import asked_apart, in_words
from sgpu_decl.agent.monitor.device_usage import installed_gpus
from sgpu_decl.agent.ray.ray_object_store import default_store, shared_memory
from sgpu_decl.agent.system import host_locks, kernel_features

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def hello(root: str) -> dict[str, Any]:
    """What launches need to know of a box: the same for as long as it is up."""
    os.makedirs(root, 0o700, exist_ok=True)
    return {
        "system": platform.system(),
        "machine": platform.machine(),
        "python": sys.executable,
        "version": list(sys.version_info[:3]),
        "libc": "-".join(platform.libc_ver()),
        "path": os.environ.get("PATH", os.defpath),
        "gpu_locks": host_locks.host_lock_folder("gpus"),
        "shared_gpu_locks": host_locks.shared_gpu_locks(),
        "port_locks": host_locks.host_lock_folder("ports"),
        "processors": len(os.sched_getaffinity(0)),
    }


def facts(root: str, _message: dict[str, Any], _content: object) -> tuple[dict[str, Any], bytes]:
    """What plans need to know of it now: `gpus` in the order of the PCI bus, each with `index`,
    `name`, `memory` and `uuid`; `users` of GPUs, in words by `index`; `free` bytes on the disk of
    the root; `time` by its clock; sizes for Ray; what its kernel lacks."""
    found = installed_gpus()
    users = asked_apart([gpu["index"] for gpu in found]) if found else {}
    lacking = kernel_features.shortcomings()
    return {
        "gpus": found,
        "users": {device: in_words(device, who) for device, who in users.items()},
        "free": shutil.disk_usage(root).free,
        "time": time.time(),
        "store": default_store(),
        "shm": shared_memory(),
        "lacks": kernel_features.in_words(lacking) if lacking else None,
    }, b""


OPERATIONS = {"facts": facts}
