"""The GPUs of this machine from NVML, NVIDIA's library for looking at its GPUs.

Source: https://docs.nvidia.com/deploy/nvml-api/, by way of the package `nvidia-ml-py`.
"""

from typing import Any

from sgpu_decl.frozen_dataclass import dataclass
from sgpu_decl.gpus.device import Device

_LIBRARY = "libnvidia-ml.so.1"


@dataclass(frozen=True, slots=True, kw_only=True)
class NvmlReport:
    """`trouble` is the error of a library that cannot work."""

    devices: tuple[Device, ...] = ()
    trouble: str = ""


def read_nvml(chosen: str) -> NvmlReport | None:
    """Return the GPUs, in the order of the PCI bus, and the parts of GPUs (MIG) that `chosen`, the
    text of CUDA_VISIBLE_DEVICES, names. `None` where there is no such library, no driver, or no
    package that speaks with it."""
    import ctypes

    try:
        ctypes.CDLL(_LIBRARY)  # the package takes far longer to import than this takes to fail
        import pynvml
    except (OSError, ImportError):
        return None
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        if error.value == pynvml.NVML_ERROR_DRIVER_NOT_LOADED:
            return None
        return NvmlReport(trouble=str(error))
    try:
        count = pynvml.nvmlDeviceGetCount()
        whole = [_device(pynvml, number) for number in range(count)]
        parts = [_part(pynvml, entry) for entry in map(str.strip, chosen.split(","))]
    except pynvml.NVMLError as error:
        return NvmlReport(trouble=str(error))
    finally:
        pynvml.nvmlShutdown()
    return NvmlReport(devices=tuple(device for device in (*whole, *parts) if device is not None))


def _device(nvml: Any, number: int) -> Device | None:
    """A GPU that fell off the bus is none."""
    try:
        handle = nvml.nvmlDeviceGetHandleByIndex(number)
    except nvml.NVMLError:
        return None
    return _described(nvml, handle, str(number), part=False)


def _part(nvml: Any, entry: str) -> Device | None:
    if not entry.startswith("MIG-"):
        return None
    try:
        handle = nvml.nvmlDeviceGetHandleByUUID(entry)
    except nvml.NVMLError:
        return None
    return _described(nvml, handle, entry, part=True)


def _described(nvml: Any, handle: Any, index: str, *, part: bool) -> Device:
    return Device(
        index=index,
        name=str(nvml.nvmlDeviceGetName(handle)),
        memory=_memory(nvml, handle),
        uuid=str(nvml.nvmlDeviceGetUUID(handle)),
        part=part,
    )


def _memory(nvml: Any, handle: Any) -> int | None:
    try:
        return int(nvml.nvmlDeviceGetMemoryInfo(handle).total)
    except nvml.NVMLError:  # GPUs that share the memory of the host do not say
        return None
