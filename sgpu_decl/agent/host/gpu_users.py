"""Which processes use the GPUs of this machine, as NVML tells it.

Source: https://docs.nvidia.com/deploy/nvml-api/ (nvmlDeviceGetComputeRunningProcesses). The library
is part of the driver. It is asked in a process of its own: it may wait for the driver, and a broken
one may crash.
"""

from __future__ import annotations

import json
import os

from sgpu_decl.agent.system.byte_size import size
from sgpu_decl.agent.system.processes import variables

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from typing import Any

    Users = Mapping[str, Sequence[tuple[int, int | None]]]

_LIBRARY = "libnvidia-ml.so.1"
_UNKNOWN = 2**64 - 1  # NVML's NVML_VALUE_NOT_AVAILABLE for memory
_TOO_SMALL = 7  # NVML_ERROR_INSUFFICIENT_SIZE
_CALLS = ("nvmlDeviceGetComputeRunningProcesses_v3", "nvmlDeviceGetComputeRunningProcesses_v2")
_SHARING = "nvidia-cuda-mps"  # the server of MPS, by which programs share a GPU on purpose
_SHOWN = 3


def gpu_users(devices: Sequence[str], ignored: Collection[int] = ()) -> Users:
    """Return, for each device that others use, the pids of their processes and the bytes of each,
    None where the driver does not say. Empty where there is no NVML. Ranks of this user do not
    count: their runs hold locks.

    Args:
        devices: numbers in the order of the PCI bus, or UUIDs.
        ignored: pids that do not count.
    """
    try:
        import ctypes

        nvml = ctypes.CDLL(_LIBRARY)
        if nvml.nvmlInitWithFlags(0):
            return {}
    except (OSError, ImportError, AttributeError):
        return {}
    try:
        listed = ((device, _processes(ctypes, nvml, device)) for device in devices)
        counted = (
            (device, [one for one in found if one[0] not in ignored and not _passed_over(one[0])])
            for device, found in listed
        )
        return {device: found for device, found in counted if found}
    finally:
        nvml.nvmlShutdown()


def asked_apart(devices: Sequence[str], ignored: Collection[int] = ()) -> Users:
    """`gpu_users` from a process that is forked for it."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.close(reader)
            with open(writer, "w", encoding="ascii") as pipe:
                json.dump(gpu_users(devices, ignored), pipe)
        finally:
            os._exit(0)
    os.close(writer)
    with open(reader, encoding="ascii") as pipe:
        text = pipe.read()
    os.waitpid(pid, 0)
    try:
        found = json.loads(text)
    except ValueError:
        return {}
    return {device: [(one[0], one[1]) for one in users] for device, users in found.items()}


def attempt_of(pid: int) -> str:
    """The attempt of this user that a process is a rank of; empty for all others."""
    found = variables(pid)
    address, attempt = found.get("SGPU_ADDRESS"), found.get("SGPU_ATTEMPT")
    return f"{address}#{attempt}" if address and attempt else ""


def in_words(device: str, users: Sequence[tuple[int, int | None]]) -> str:
    """Return `GPU 3 is used by user bob (process 4711, python, 31.0 GB)`."""
    return f"GPU {device} is used by {user_words(users)}"


def user_words(users: Sequence[tuple[int, int | None]]) -> str:
    """Return `user bob (process 4711, python, 31.0 GB)`, several of them with commas."""
    more = len(users) - _SHOWN
    said = [_described(*user) for user in users[:_SHOWN]]
    return ", ".join(said) + (f" and {more:,} more" if more > 0 else "")


def _described(pid: int, memory: int | None) -> str:
    amount = "" if memory is None else f", {size(memory)}"
    uid, command = _uid(pid), _command(pid)
    if uid is None or command is None:  # NVML counts as the host does; a container counts its own
        return f"process {pid} (not visible from here{amount})"
    return f"user {_user(uid)} (process {pid}, {command}{amount})"


def _uid(pid: int) -> int | None:
    try:
        with open(f"/proc/{pid}/status", "rb") as file:
            line = next(line for line in file if line.startswith(b"Uid:"))
    except (OSError, StopIteration):
        return None
    return int(line.split()[1])


def _user(uid: int) -> str:
    try:
        import pwd

        return pwd.getpwuid(uid).pw_name
    except (ImportError, KeyError):
        return str(uid)


def _command(pid: int) -> str | None:
    try:
        with open(f"/proc/{pid}/comm", encoding="utf-8", errors="replace") as file:
            return file.read().strip()
    except OSError:
        return None


def _passed_over(pid: int) -> bool:
    return _command(pid) == _SHARING or bool(_uid(pid) == os.getuid() and attempt_of(pid))


def _processes(ctypes: Any, nvml: Any, device: str) -> list[tuple[int, int | None]]:
    fields = (("pid", ctypes.c_uint), ("memory", ctypes.c_ulonglong),
              ("instance", ctypes.c_uint), ("part", ctypes.c_uint))  # fmt: skip
    process: Any = type("nvmlProcessInfo_v2_t", (ctypes.Structure,), {"_fields_": fields})
    handle = ctypes.c_void_p()
    if device.isdigit():
        failed = nvml.nvmlDeviceGetHandleByIndex_v2(int(device), ctypes.byref(handle))
    else:
        failed = nvml.nvmlDeviceGetHandleByUUID(device.encode(), ctypes.byref(handle))
    call = next((getattr(nvml, name) for name in _CALLS if hasattr(nvml, name)), None)
    room = 64
    while not failed and call is not None:
        count, found = ctypes.c_uint(room), (process * room)()
        code = call(handle, ctypes.byref(count), found)
        if code == 0:
            known = found[: count.value]
            return [(one.pid, None if one.memory == _UNKNOWN else one.memory) for one in known]
        if code != _TOO_SMALL or room > 1 << 16:
            break
        room = max(count.value, room) * 2
    return []
