"""What a box is: its system, its GPUs and who uses them, and the room for runs."""

from __future__ import annotations

import json
import os
import select
import shutil
import signal
import time

from sgpu_decl.agent.host.gpu_users import gpu_users, in_words
from sgpu_decl.agent.monitor.device_usage import installed_gpus
from sgpu_decl.agent.ray.ray_object_store import default_store, shared_memory
from sgpu_decl.agent.system import kernel_features

_PATIENCE = 20.0  # seconds for a driver

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def facts(root: str, _message: dict[str, Any], _content: object) -> tuple[dict[str, Any], bytes]:
    """What plans need to know of it now: `gpus` in the order of the PCI bus, each with `index`,
    `name`, `memory` and `uuid`; `users` of GPUs, in words by `index`; `free` bytes on the disk of
    the root, and whether that runs no programs; `time` by its clock; sizes for Ray; what its kernel
    lacks."""
    found, users = _asked_apart()
    lacking = kernel_features.shortcomings()
    return {
        "gpus": found,
        "users": users,
        "free": shutil.disk_usage(root).free,
        "noexec": bool(os.statvfs(root).f_flag & os.ST_NOEXEC),
        "time": time.time(),
        "store": default_store(),
        "shm": shared_memory(),
        "lacks": kernel_features.in_words(lacking) if lacking else None,
    }, b""


def _asked_apart() -> tuple[list[dict[str, Any]], dict[str, str]]:
    """The GPUs and their users, from a process that is forked for it: NVML may wait for the driver,
    and a broken one may crash."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.close(reader)
            found = installed_gpus()
            users = gpu_users([gpu["index"] for gpu in found])
            words = {device: in_words(device, who) for device, who in users.items()}
            with open(writer, "w", encoding="ascii") as pipe:
                json.dump([found, words], pipe)
        finally:
            os._exit(0)
    os.close(writer)
    text = b""
    deadline = time.monotonic() + _PATIENCE
    while select.select([reader], [], [], max(0.0, deadline - time.monotonic()))[0]:
        part = os.read(reader, 1 << 16)
        if not part:
            break
        text += part
    else:  # it may wait in the kernel, where nothing ends it
        os.kill(pid, signal.SIGKILL)
        os.close(reader)
        return [], {}
    os.close(reader)
    os.waitpid(pid, 0)
    try:
        found, words = json.loads(text)
    except ValueError:
        return [], {}
    return found, words


OPERATIONS = {"facts": facts}
